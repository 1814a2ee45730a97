"""CONNECT to CONNACK: who the client is, whether it may come in, and on what terms.

Passwords are checked in a thread; everything else is decided at once on the loop.
"""

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from msgspec import structs

from geomq.broker.clients.geocontext import GeoContext
from geomq.broker.clients.mounting import mounted_will
from geomq.broker.clients.registry import Registry
from geomq.broker.connections.connection import Connection
from geomq.broker.connections.password_checks import PasswordChecks
from geomq.broker.connections.ports import Authenticator, Elsewhere, Trouble
from geomq.broker.core import Core
from geomq.broker.security.access import Security
from geomq.broker.security.identity import (
    ANONYMOUS,
    Identity,
    Proof,
    certificate_user,
    client_id_refusal,
    empty_client_id_allowed,
    identity_refusal,
)
from geomq.broker.security.passwords import Passwords
from geomq.broker.state.budget import SHORT_OF_MEMORY
from geomq.broker.state.client import Client
from geomq.errors import GeometryError, TopicError
from geomq.geo import Location, parse_location
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Auth, Connect
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.handshake import Agreement, agree, refusal, welcome
from geomq.vocabulary import DETAILS_PROPERTY, DROPPED_PROPERTY, LOCATION_PROPERTY, WAITING_PROPERTY

log = logging.getLogger("geomq.broker")

VERSIONS = {V311: "3.1.1", V5: "5"}


class Newcomer(NamedTuple):
    """A connection whose client is who it says, and on what terms it may come in."""

    connection: Connection
    connect: Connect
    agreement: Agreement
    identity: Identity
    location: Location | None


class Admission:
    """Lets clients in. `authenticators` maps method names to enhanced authentications.

    `elsewhere` is None if there are no other brokers.
    """

    def __init__(self, core: Core, registry: Registry, geo: GeoContext, elsewhere: Elsewhere | None) -> None:
        self.authenticators: dict[str, Authenticator] = {}
        self._elsewhere = elsewhere
        self._core = core
        self._registry = registry
        self._geo = geo
        self._checks = PasswordChecks(core)
        self._coming: dict[str, Connection] = {}
        """Connections that wait until the disk knows that the session of their client goes on."""

    def close(self) -> None:
        self._checks.close()

    def closed(self, connection: Connection) -> None:
        """Nobody waits for this connection's password to be checked any more."""
        self._checks.cancel(connection, connection.address)

    def begin(self, connection: Connection, connect: Connect) -> None:
        """Decide on a CONNECT, at once or as soon as its password is checked."""
        spoken = connection.listener.versions
        if spoken and VERSIONS.get(connect.version) not in spoken:
            text = f"only MQTT {' and '.join(spoken)} is spoken here"
            self._refuse(connection, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, text)
            return
        method = connect.properties.authentication_method
        if method is not None:
            self._begin_exchange(connection, connect, method)
            return
        tls = connection.tls()
        user = certificate_user(connection.listener, None if tls is None else tls.getpeercert())
        if user is not None:
            self._finish(connection, connect, Identity(user, Proof.CERTIFICATE))
        elif connection.listener.certificate_user != "none":
            self._refuse(connection, ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the certificate names no user")
        elif connect.username is None:
            self._finish_if_allowed(connection, connect, ANONYMOUS)
        else:
            self._check_password(connection, connect, connect.username, connect.password or b"")

    def _check_password(self, connection: Connection, connect: Connect, user: str, password: bytes) -> None:
        passwords = self._core.security.passwords_at(connection.listener)
        if passwords is None:
            # Without a password file a user name is only a name, as long as nobody needs one.
            self._finish_if_allowed(connection, connect, Identity(user, Proof.NONE))
            return
        if passwords.remembered(user, password):
            self._finish(connection, connect, Identity(user, Proof.PASSWORD, passwords.entry(user)))
            return
        compute = partial(passwords.check, user, password)
        then = partial(self._checked, connection, connect, passwords)
        if self._checks.ask(connection, connection.address, compute, then):
            connection.watch()
        else:
            self._refuse(connection, ReasonCode.SERVER_BUSY, "too many password checks are waiting")

    def _checked(self, connection: Connection, connect: Connect, passwords: Passwords, good: bool) -> None:
        if connection.closed:
            return
        user = connect.username
        assert user is not None
        if self._core.security.passwords_at(connection.listener) is not passwords:
            self._check_password(connection, connect, user, connect.password or b"")
        elif good:
            self._finish(connection, connect, Identity(user, Proof.PASSWORD, passwords.entry(user)))
        else:
            log.info("client %r from %s: wrong user name or password", connect.client_id, connection.address)
            self._refuse(connection, ReasonCode.BAD_USER_NAME_OR_PASSWORD, None)

    def _finish_if_allowed(self, connection: Connection, connect: Connect, identity: Identity) -> None:
        """Of a client that proves nothing."""
        refused = self._identity_refusal(connection, identity)
        if refused is None:
            self._finish(connection, connect, identity)
        else:
            self._refuse(connection, ReasonCode.NOT_AUTHORIZED, refused)

    def _identity_refusal(self, connection: Connection, identity: Identity) -> str | None:
        core, listener = self._core, connection.listener
        return identity_refusal(identity, core.config.auth, listener, core.security.passwords_at(listener))

    def _finish(self, connection: Connection, connect: Connect, identity: Identity) -> None:
        """The client is who it says: agree on terms and let it in."""
        core, user, listener = self._core, identity.user, connection.listener
        if not connect.client_id and not empty_client_id_allowed(core.config.auth, listener):
            self._refuse(connection, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a client id is required")
            return
        try:
            spare_id = f"auto-{core.platform.random_bytes(12).hex()}"
            agreement = agree(connect, core.policy_at(listener), spare_id=spare_id)
            location = _location(connect)
            will = mounted_will(listener.mount_point or "", connect.will)
        except ProtocolViolation as violation:
            self._refuse(connection, violation.reason, str(violation))
            return
        except TopicError as error:
            self._refuse(connection, ReasonCode.TOPIC_NAME_INVALID, str(error))
            return
        except GeometryError as error:
            core.counts.geo_errors += 1
            self._refuse(connection, ReasonCode.PAYLOAD_FORMAT_INVALID, str(error))
            return
        if not connection.takes(welcome(connect, agreement, core.policy_at(listener), session_present=False)):
            core.counts.connections_refused += 1
            connection.end()
            return
        known = core.clients.get(agreement.client_id)
        text = client_id_refusal(
            core.config.auth,
            client_id=agreement.client_id,
            user=user,
            owner=None if known is None else known.user,
            exists=known is not None,
            only_claimed=known is not None and known.proved and not identity.proved,
        )
        if text is not None:
            self._refuse(connection, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, text)
            return
        if known is None and len(core.clients) >= core.config.limits.sessions_max:
            self._refuse(connection, ReasonCode.QUOTA_EXCEEDED, "too many sessions")
            return
        if known is None and core.budget.sheds:
            core.counts.memory_refused += 1
            self._refuse(connection, ReasonCode.SERVER_BUSY, SHORT_OF_MEMORY)
            return
        newcomer = Newcomer(connection, structs.replace(connect, will=will), agreement, identity, location)
        if self._elsewhere is None:
            self._let_in(newcomer, None)
            return
        address = self._elsewhere.address_for(connect, location)
        if address is not None:
            self._refuse(
                connection, ReasonCode.USE_ANOTHER_SERVER, "another broker serves this location", go_to=address
            )
            return
        self._elsewhere.fetch(connection, connect, agreement, user, partial(self._found, newcomer))

    def _found(self, newcomer: Newcomer, refused: Trouble | None, since_ms: int | None) -> None:
        """The search for the client's session at other brokers is over."""
        if refused is not None:
            self._refuse(newcomer.connection, *refused)
        elif self._is_still_welcome(newcomer):
            self._let_in(newcomer, since_ms)

    def _is_still_welcome(self, newcomer: Newcomer) -> bool:
        """Whether the settings, which may have changed while the client waited, still let it in; else it is refused."""
        changed = self._identity_refusal(newcomer.connection, newcomer.identity)
        if changed is not None:
            self._refuse(newcomer.connection, ReasonCode.NOT_AUTHORIZED, changed)
        return changed is None

    def _let_in(self, newcomer: Newcomer, since_ms: int | None) -> None:
        """Let a client in, to a session that runs out as soon as its broker has on disk that it goes on."""
        client_id = newcomer.agreement.client_id
        before = self._coming.pop(client_id, None)
        if before is not None and not before.closed:
            self._refuse(before, ReasonCode.SERVER_BUSY, "the client connected again")
        known = self._core.clients.get(client_id)
        if (
            known is None
            or newcomer.connect.clean_start
            or not newcomer.agreement.expiry_s
            or not self._registry.note_coming(known, partial(self._come_back, newcomer, known, since_ms))
        ):
            self._come_in(newcomer, since_ms)
        else:
            self._coming[client_id] = newcomer.connection

    def _come_back(self, newcomer: Newcomer, known: Client, since_ms: int | None) -> None:
        """A client may come in to the session that was there when it asked, unless it came another way since."""
        connection = newcomer.connection
        if self._coming.get(known.id) is not connection:
            return
        del self._coming[known.id]
        waits = self._core.clients.get(known.id) is known and known.connection is None
        if waits and not connection.closed and self._is_still_welcome(newcomer):
            self._come_in(newcomer, since_ms)
        elif waits:
            self._registry.note_not_coming(known)
        elif not connection.closed:
            self._refuse(connection, ReasonCode.SERVER_BUSY, "the client connected again")

    def _come_in(self, newcomer: Newcomer, since_ms: int | None) -> None:
        connection, connect, agreement, identity, location = newcomer
        core = self._core
        client, present, resumed = self._registry.open(connection, connect, agreement, identity)
        connack = welcome(connect, agreement, core.policy_at(connection.listener), session_present=present)
        told = list(_told(client, core.config.geo.details))
        if told:
            properties = structs.replace(connack.properties, user_properties=tuple(told))
            connack = structs.replace(connack, properties=properties)
        connection.admitted(client, agreement, identity)
        connection.send(client.session.reply(connack))
        for data in resumed:
            core.outbox.hold(connection, data)
        if location is not None:
            self._geo.move(client, location)
        if self._elsewhere is not None:
            self._elsewhere.came_in(client, since_ms)
        connection.go_on()

    def _refuse(
        self, connection: Connection, reason: ReasonCode, text: str | None, *, go_to: str | None = None
    ) -> None:
        self._core.counts.connections_refused += 1
        connection.refuse(refusal(reason, text, server_reference=go_to))

    # Changed settings.

    def revoke(self, connections: Iterable[Connection], before: Security) -> None:
        """End those of them that could not come in now as they are. Those not let in yet whose certificate was checked
        by the files as they were may come again."""
        for connection in connections:
            client, identity = connection.client, connection.identity
            if client is None or identity is None:
                if connection.listener.cafile is not None:
                    connection.dismiss(ReasonCode.SERVER_BUSY)
                continue
            refused = (
                self._identity_refusal(connection, identity)
                or self._certificate_refusal(connection, before)
                or client_id_refusal(
                    self._core.config.auth, client_id=client.id, user=client.user, owner=client.user, exists=True
                )
            )
            if refused is not None:
                self._core.counts.connections_revoked += 1
                log.info("client %r at %s is disconnected: %s", client.id, connection.address, refused)
                connection.dismiss(ReasonCode.NOT_AUTHORIZED, refused)

    def _certificate_refusal(self, connection: Connection, before: Security) -> str | None:
        """What the files say now about a certificate that was good at the handshake."""
        listener, tls = connection.listener, connection.tls()
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate is None:
            return None
        return self._core.security.trust[listener].refusal(certificate, before.trust[listener])

    # Enhanced authentication.

    def _begin_exchange(self, connection: Connection, connect: Connect, method: str) -> None:
        authenticator = self.authenticators.get(method)
        if authenticator is None:
            self._refuse(connection, ReasonCode.BAD_AUTHENTICATION_METHOD, f"method {method[:80]!r} is unknown")
            return
        connection.exchange = authenticator.begin(connect)
        connection.pending_connect = connect
        self._step(connection, connect.properties.authentication_data)

    def on_auth(self, connection: Connection, packet: Auth) -> None:
        """AUTH during the handshake, or later to prove the identity again."""
        connect = connection.pending_connect
        method = packet.properties.authentication_method
        if connect is None or connect.properties.authentication_method is None:
            raise ProtocolViolation("AUTH without an authentication method in CONNECT")
        if method != connect.properties.authentication_method:
            raise ProtocolViolation(
                "AUTH names a different authentication method", ReasonCode.BAD_AUTHENTICATION_METHOD
            )
        if connection.client is not None and packet.reason == ReasonCode.REAUTHENTICATE:
            connection.exchange = self.authenticators[method].begin(connect)
        elif packet.reason != ReasonCode.CONTINUE_AUTHENTICATION or connection.exchange is None:
            raise ProtocolViolation("AUTH without an authentication in progress")
        self._step(connection, packet.properties.authentication_data)

    def _step(self, connection: Connection, data: bytes | None) -> None:
        exchange, connect = connection.exchange, connection.pending_connect
        assert exchange is not None
        assert connect is not None
        method = connect.properties.authentication_method
        try:
            answer, user = exchange.step(data)
        except PermissionError as error:
            if connection.client is None:
                self._refuse(connection, ReasonCode.NOT_AUTHORIZED, str(error) or None)
                return
            raise ProtocolViolation("authentication failed", ReasonCode.NOT_AUTHORIZED) from None
        properties = Properties(authentication_method=method, authentication_data=answer)
        if user is None:
            connection.send_packet(Auth(ReasonCode.CONTINUE_AUTHENTICATION, properties))
            connection.listen_for_auth()
            return
        connection.exchange = None
        if connection.client is None:
            self._finish(connection, connect, Identity(user, Proof.EXCHANGE))
        elif connection.client.user != user:
            raise ProtocolViolation("re-authenticated as a different user", ReasonCode.NOT_AUTHORIZED)
        else:
            connection.send_packet(Auth(ReasonCode.SUCCESS, properties))


def _told(client: Client, details: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What a client of MQTT 5 is told of its session beside the terms."""
    if client.asks:
        yield DETAILS_PROPERTY, " ".join(details)
        yield WAITING_PROPERTY, str(client.session.pending)
    if client.session.version == V5 and (missed := client.session.told_missed()):
        yield DROPPED_PROPERTY, str(missed)


def _location(connect: Connect) -> Location | None:
    text = connect.properties.user(LOCATION_PROPERTY)
    return None if text is None else parse_location(text)
