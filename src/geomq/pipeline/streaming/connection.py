"""How the source and the sink connect: their options as an MQTT session on a blocking socket, refusals in one line."""

import ssl
from typing import Final

from geomq.errors import GeomqError
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.packets import Connack, Connect
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import V5
from geomq.pipeline.streaming.options import Address, Login
from geomq.transport import address as transport
from geomq.transport.blocking import BlockingLink, RefusedByBroker
from geomq.vocabulary import DETAILS_PROPERTY, WAITING_PROPERTY

CONNECT_TIMEOUT_S: Final = 10.0
PACKET_SIZE_MAX: Final = 64 << 20


class RefusedForGood(GeomqError):  # noqa: N818
    """The broker does not want this connection or subscription; trying again will not help."""


class Connection:
    """Use `open`, and `connect` after the connection broke; the session goes on.

    `details` are what the broker promised to say about events; empty for brokers that know none.
    """

    def __init__(self, address: Address, login: Login, connect: Connect, policy: ClientPolicy) -> None:
        self.address = address
        self.version = login.version
        self.connack = Connack()
        self.session = ClientSession(connect, policy)
        context = ssl.create_default_context(cafile=login.cafile) if address.tls else None
        self.link = BlockingLink(self.session, transport.Address(address.host, address.port, context))

    @classmethod
    def open(
        cls,
        address: Address,
        login: Login,
        client_id: str,
        *,
        clean: bool,
        keep_alive_s: int,
        properties: Properties = NO_PROPERTIES,
        receive_max: int | None = None,
        in_flight_max: int = 65_535,
        queue_max: int = 1_000,
    ) -> "Connection":
        """Connect: OSError if nobody answers, RefusedForGood if the broker refuses."""
        connect = Connect(
            client_id,
            login.version,
            clean,
            keep_alive_s,
            username=login.username,
            password=None if login.password is None else login.password.encode(),
            properties=properties if login.version == V5 else NO_PROPERTIES,
        )
        policy = ClientPolicy(
            receive_max=receive_max,
            in_flight_max=in_flight_max,
            queue_max=queue_max,
            packet_size_max=PACKET_SIZE_MAX,
            ping_s=keep_alive_s / 3,
            answer_s=CONNECT_TIMEOUT_S,
        )
        connection = cls(address, login, connect, policy)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def connect(self) -> None:
        """Connect anew, after the connection broke."""
        try:
            self.connack = self.link.connect().connack
        except RefusedByBroker as error:
            raise RefusedForGood(str(error)) from None
        except ssl.SSLError as error:
            raise RefusedForGood(f"broker {self.address}: TLS failed: {error.reason or error}") from None

    @property
    def details(self) -> tuple[str, ...]:
        return tuple((self.connack.properties.user(DETAILS_PROPERTY) or "").split())

    @property
    def waiting(self) -> int | None:
        """How many messages the broker had for the session when it accepted the connection, if it says so."""
        text = self.connack.properties.user(WAITING_PROPERTY) or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None

    def close(self) -> None:
        self.link.close()
