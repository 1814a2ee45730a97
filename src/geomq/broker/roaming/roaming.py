"""Sessions follow their clients from broker to broker: this carries out what routing decides about that.

Which broker is asked for a session, who waits for it and who gets it is `routing/sessions`' affair. Here connections
wait for the answer, sessions are packed and taken in, and what was kept is put back after a restart.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from geomq.broker.clients.geotopics import read_filter
from geomq.broker.clients.registry import Registry
from geomq.broker.connections.ports import Then, Trouble
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.roaming.redirecting import Redirecting
from geomq.broker.roaming.session_transfer import (
    DepartedSession,
    departed_session,
    pack,
    read_departed,
    subscription_keys_of,
    unpack,
)
from geomq.broker.security.identity import client_id_refusal
from geomq.broker.state.client import Client, ClientConnection
from geomq.broker.state.drops import Reason
from geomq.broker.storage.records import StoredSession
from geomq.errors import ProtocolError
from geomq.geo import Fence, Location
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.handshake import Agreement
from geomq.mqtt.session.outbound import InFlight, Phase
from geomq.routing.core.actions import (
    EndSession,
    ForgetNote,
    GiveSession,
    LetClientIn,
    RefuseHandOver,
    SessionAction,
    TakeSession,
    TurnClientAway,
    Why,
)
from geomq.routing.core.events import (
    AddressAnnounced,
    ClientArrived,
    ClientDeparted,
    ClientMoved,
    ClientSubscribed,
    SessionPacked,
    SessionSought,
    SessionTaken,
)
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.sessions.arrivals import HAD
from geomq.routing.sessions.hand_overs import PARTS_MAX, Notes
from geomq.routing.sessions.moves import DEPARTED
from geomq.routing.sessions.searches import OwnSession

log = logging.getLogger("geomq.roaming")

_had = msgspec.msgpack.Decoder(tuple[EventId, ...]).decode


REFUSALS: dict[Why, Trouble] = {
    "too many wait": Trouble(ReasonCode.SERVER_BUSY, "too many clients are waiting for their sessions"),
    "session missing": Trouble(
        ReasonCode.SERVER_UNAVAILABLE, "a broker that may have the session does not answer; try again"
    ),
    "another user's": Trouble(
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id belongs to another user's session"
    ),
}


class PendingConnect(NamedTuple):
    """A connection that waits to be let in."""

    connection: ClientConnection
    then: Then


class Roaming:
    """One broker's side of all of it."""

    def __init__(self, core: Core, driver: Driver, registry: Registry) -> None:
        self._core = core
        self._driver = driver
        self._registry = registry
        self._attempts = 0
        self._pending: dict[int, PendingConnect] = {}
        self.redirecting = Redirecting(core, registry)

    def load(self, notes: Notes) -> None:
        """Take in what the store remembered; sessions and what peers placed here are there already."""
        core, node, now = self._core, self._core.node, self._core.now_ms()
        for key, value in notes.get(DEPARTED, {}).items():
            client_id = key.decode("utf-8", "surrogatepass")
            if client_id not in core.clients:
                self.restore_departed(client_id, read_departed(value), now)
            else:
                self._driver.keep_note(ForgetNote(DEPARTED, key))
        for key, value in notes.get(HAD, {}).items():
            client = core.clients.get(key.decode("utf-8", "surrogatepass"))
            if client is None:
                self._driver.keep_note(ForgetNote(HAD, key))
                continue
            had = (*_had(value), *node.had_by(client.subscription_keys()))
            for each in client.subscription_keys():
                node.handle(ClientArrived(each, had), now=now)
        secret = node.session_searches.load(self, notes, core.platform.random_bytes, now=now)
        if secret is not None:
            self._driver.keep_note(secret)
            core.store.commit()

    def restore_departed(self, client_id: str, left: DepartedSession, now: float) -> None:
        """Put back what routing knew of a client that left; nothing of that is news to other brokers."""
        node, location = self._core.node, None if left.location is None else Location(*left.location)
        for key, topic_filter, text, share in left.subscriptions:
            fence = None if text is None else self._core.fence_texts.written(text)
            node.handle(ClientMoved(ClientId(key), location), now=now)
            node.handle(ClientSubscribed(ClientId(key), topic_filter, fence, share), now=now)
        for key in dict.fromkeys((client_id, *(key for key, *_ in left.subscriptions))):
            node.handle(ClientDeparted(ClientId(key), BrokerId(left.to)), now=now)

    # What routing asks about sessions.

    def find(self, client: ClientId) -> OwnSession | None:
        found = self._core.clients.get(client)
        return None if found is None else OwnSession(found.user, found.since_ms)

    def may_take(self, client: ClientId, user: str | None) -> bool:
        auth, owner = self._core.config.auth, self._core.clients[client].user
        return client_id_refusal(auth, client_id=client, user=user, owner=owner, exists=True) is None

    # A client comes.

    def announce(self, address: str | None) -> None:
        """Clients reach this broker here."""
        if address is not None:
            self._driver.handle(AddressAnnounced(address))

    def address_for(self, connect: Connect, location: Location | None) -> str | None:
        """Where a connecting client should rather go; None if it is to be served here."""
        return self.redirecting.address_for(connect, location)

    def fetch(
        self, connection: ClientConnection, connect: Connect, agreement: Agreement, user: str | None, then: Then
    ) -> None:
        """Find the client's session wherever it is, then go on."""
        core, section = self._core, self._core.config.federation
        if agreement.assigned:
            then(None, None)
            return
        self._attempts += 1
        attempt, wait_s = self._attempts, section.session_wait_s
        self._pending[attempt] = PendingConnect(connection, then)
        self._driver.handle(
            SessionSought(
                ClientId(agreement.client_id),
                attempt,
                user,
                connect.clean_start,
                int(core.wall_s() * 1000),
                wait_s * 1000.0,
                section.session_missing == "refuse",
                core.config.auth.client_id == "any",
            )
        )
        if attempt in self._pending:
            connection.wait_longer(wait_s)

    def came_in(self, client: Client, since_ms: int | None) -> None:
        """A client is connected; its session may know it to be outside the area."""
        if since_ms is not None:
            client.date(since_ms)
        self.redirecting.look_at(client)

    # What is to be done.

    def carry_out(self, action: SessionAction) -> None:
        match action:
            case LetClientIn(attempt=attempt, since_ms=since_ms):
                pending = self._pending.pop(attempt)
                if not pending.connection.closed:
                    pending.then(None, since_ms)
            case TurnClientAway(attempt=attempt, why=why):
                self._turn_away(self._pending.pop(attempt), why)
            case EndSession(client=client):
                self._end(client)
            case GiveSession():
                self._give(action)
            case TakeSession(client=client, data=data, peer=peer):
                self._take(client, data, peer)
            case RefuseHandOver(peer=peer, client=client, reason=reason):
                extra = {"peer": peer, "client": client[:80], "reason": reason}
                log.warning("part of a session refused", extra=extra)

    def _turn_away(self, pending: PendingConnect, why: Why) -> None:
        if why == "connects again":
            pending.connection.dismiss(ReasonCode.SERVER_BUSY, "the client connected again")
        elif not pending.connection.closed:
            pending.then(REFUSALS[why], None)

    # Giving.

    def _disconnect(self, client_id: ClientId) -> Client | None:
        """The client is connected elsewhere now: its session, if it outlives the connection."""
        client = self._core.clients.get(client_id)
        if client is not None and client.connection is not None:
            self._registry.take_over(client)
        return self._core.clients.get(client_id)

    def _end(self, client_id: ClientId) -> None:
        client = self._disconnect(client_id)
        if client is not None:
            self._registry.end(client)

    def _give(self, action: GiveSession) -> None:
        """From here on the session is the peer's."""
        core, client = self._core, self._disconnect(action.client)
        parts: list[bytes] = []
        if client is not None:
            subscribed = [(whole, self._fence_of(client, whole)) for whole in client.session.subscriptions]
            may_read = core.rights_of_peer(action.to).may_read
            waiting = self._granted(client.session.unfinished()[0], may_read, action.to, Reason.PEER_MAY_NOT_READ)
            parts = pack(client, subscribed, core.node.had_by(client.subscription_keys()), waiting, now=core.now_s())
            if len(parts) > PARTS_MAX:
                log.warning("the session of %s is too large to hand over", client.id)
        if client is None or len(parts) > PARTS_MAX:
            self._driver.handle(SessionPacked(action.client, action.to, action.token))
            return
        client.take_will()
        self._registry.give_away(client)
        record, keys = departed_session(client, subscribed, action.to), tuple(client.subscription_keys())
        not_had = tuple(
            EventId(BrokerId(each.message.event_id[0]), *each.message.event_id[1:])
            for each in client.session.unfinished()[0]
            if each.phase is not Phase.RELEASED and each.message.event_id is not None
        )
        self._driver.give_session(
            SessionPacked(client.id, action.to, action.token, tuple(parts), keys, record, not_had)
        )
        core.counts.sessions_given += 1

    def _granted(
        self, deliveries: Iterable[InFlight], may: Callable[[str], bool], peer: BrokerId, reason: Reason
    ) -> list[InFlight]:
        """What of a session may cross the link with a peer; what its client has had already, in any case."""
        found, refused = list[InFlight](), 0
        for each in deliveries:
            if each.phase is Phase.RELEASED or may(each.message.topic):
                found.append(each)
            else:
                refused += 1
        if refused:
            self._core.drops.for_peer(peer, reason, refused)
        return found

    def _fence_of(self, client: Client, whole: str) -> Fence | None:
        reading = read_filter(whole)
        return self._core.node.fence_of(client.subscription_key(reading.prefix), reading.plain, reading.group)

    # Taking.

    def _take(self, client_id: ClientId, data: bytes, giver: BrokerId) -> None:
        core = self._core
        try:
            stored, had = unpack(data, now=core.now_s())
        except ProtocolError as error:
            log.error("session of %r lost: %s", client_id[:80], error)
            return
        may_write = core.rights_of_peer(giver).may_write
        granted = self._granted(stored.deliveries, may_write, giver, Reason.PEER_MAY_NOT_WRITE)
        stored = dataclasses.replace(stored, deliveries=granted)
        known = core.clients.get(client_id)
        had_here = frozenset(() if known is None else core.node.had_by(known.subscription_keys()))
        for key in subscription_keys_of(client_id, stored):
            self._driver.handle(ClientArrived(key, had))
        if known is None:
            self._registry.take_in(client_id, stored)
        else:
            new = [each for each in stored.deliveries if each.message.event_id not in had_here]
            self._merge(known, stored, self._allowed(known, new))
        core.counts.sessions_taken += 1
        self._driver.handle(SessionTaken(client_id))

    def _allowed(self, client: Client, deliveries: list[InFlight]) -> list[InFlight]:
        """Without those that the client has no right to read, or that are outside of its mount point."""
        may_read, mount = client.rights.may_read, client.session.mount
        topics = ((each, each.message.topic) for each in deliveries)
        allowed = [each for each, topic in topics if topic.startswith(mount) and may_read(topic)]
        self._core.counts.deliveries_denied += len(deliveries) - len(allowed)
        return allowed

    def _merge(self, client: Client, stored: StoredSession, deliveries: list[InFlight]) -> None:
        """The client did not wait for its session and has a new one: it gets what it has not had.

        What was sent but not answered it may have had: that is sent as once more. It may never have heard that a new
        session began, and then wants what it wanted before.
        """
        core = self._core
        knows = client.told_new and client.connection is not None and client.connection.answered
        if not client.session.subscriptions and not knows:
            if client.session.unfinished() == ([], []):
                self._registry.go_on(client, dataclasses.replace(stored, deliveries=deliveries))
                return
            self._registry.complete(client, stored)
        for each in deliveries:
            if each.phase is not Phase.RELEASED:
                for data in client.session.requeue(each, core.now_s()):
                    if client.connection is not None:
                        core.outbox.hold(client.connection, data)
        core.outbox.schedule()
