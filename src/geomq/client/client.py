"""The client itself: connect somewhere, move, subscribe within a fence, publish to a fence, read what arrives.

Every place goes along as an MQTT 5 user property, or to a `$geo/` topic, exactly as any other MQTT client could
do it; this is convenience and checking, no protocol of its own.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from geomq.client.errors import ClientError, RefusedError
from geomq.client.link import Link
from geomq.client.message import Message, message_of
from geomq.client.places import (
    FENCE_PROPERTY,
    LOCATION_PROPERTY,
    LOCATION_TOPIC,
    FenceLike,
    LocationLike,
    fence_text_of,
    location_of,
    location_text_of,
)
from geomq.errors import UsageError

if TYPE_CHECKING:
    from geomq.geo import Location

UserProperties = tuple[tuple[str, str], ...]

T = TypeVar("T")

ROAM_PROPERTY = ("geo-roam", "1")
"""Tells the broker that this client goes to another if it is sent there."""
ROAMING_EXPIRY_S = 300
"""How long the session of a client that roams outlives its connection, unless it says so itself."""
DETAILS_PROPERTY = ("geo-details", "1")
"""Asks the broker to say with each event which one it is, when and where it was published."""


@dataclass(frozen=True, kw_only=True)
class Will:
    """What the broker publishes if the connection breaks; `to` is the fence where it matters."""

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    to: FenceLike | None = None


class Client:
    """`async with Client("broker.example", at=(52.5, 13.4)) as client:`"""

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = None,
        *,
        at: LocationLike | None = None,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | bool = False,
        websocket: bool = False,
        path: str = "/mqtt",
        keep_alive_s: int = 60,
        clean_start: bool = True,
        session_expiry_s: int = 0,
        will: Will | None = None,
        details: bool = False,
        timeout_s: float = 10.0,
        queue_max: int = 100_000,
        roam: bool = False,
    ) -> None:
        context = ssl.create_default_context() if tls is True else (tls or None)
        self._location = None if at is None else location_of(at)
        self._asked = ((DETAILS_PROPERTY,) if details else ()) + ((ROAM_PROPERTY,) if roam else ())
        self._told = False
        """Whether somebody has heard of a connection that is lost."""
        self._session_expiry_s = session_expiry_s or (ROAMING_EXPIRY_S if roam else 0)
        with self._plain_errors("cannot connect"):
            self._link = Link(
                host,
                port if port is not None else _default_port(context, websocket),
                protocol=aiomqtt.ProtocolVersion.V5,
                identifier=client_id,
                username=username,
                password=password,
                tls_context=context,
                transport="websockets" if websocket else "tcp",
                websocket_path=path if websocket else None,
                keepalive=keep_alive_s,
                clean_start=clean_start,
                properties=self._connect_properties(),
                follows=roam,
                will=None if will is None else _paho_will(will),
                timeout=timeout_s,
                max_queued_incoming_messages=queue_max,
            )

    def _connect_properties(self) -> Any:
        properties = _properties(PacketTypes.CONNECT, (*_places(at=self._location), *self._asked))
        if self._session_expiry_s:
            properties.SessionExpiryInterval = self._session_expiry_s
        return properties

    def _is_at(self, place: "Location") -> None:
        """Note the place, which the client has to say again should it be sent to another broker."""
        self._location = place
        self._link.say_at_connect(self._connect_properties())

    @property
    def address(self) -> str:
        """host:port of the broker; a client that roams may be at another than it first connected to."""
        return self._link.address

    @property
    def location(self) -> "Location | None":
        """Where this client last said it is."""
        return self._location

    @property
    def client_id(self) -> str:
        """The id in use; the broker's choice if none was given."""
        assigned = getattr(self._link.welcome, "AssignedClientIdentifier", None)
        return str(assigned) if assigned else self._link.identifier

    @property
    def session_present(self) -> bool:
        """Whether the broker still had this client's session."""
        return self._link.session_present

    async def __aenter__(self) -> Self:
        self._told = False
        with self._plain_errors(f"cannot connect to {self.address}"):
            await self._link.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._link.__aexit__(kind, error, trace)
        except aiomqtt.MqttError:
            if error is None:
                raise ClientError(f"the connection to {self.address} broke before it was closed") from None
        if error is None and self._link.lost is not None and not self._told:
            raise ClientError(f"the connection to {self.address} is lost: {self._link.lost}")

    async def move(self, lat: float, lon: float, *, qos: int = 0) -> None:
        """Tell the broker that this client is somewhere else now."""
        place = location_of((lat, lon))
        await self._link.arrived()
        self._is_at(place)
        with self._plain_errors("cannot send the location"):
            await self._link.publish(LOCATION_TOPIC, location_text_of(place), qos)

    async def subscribe(
        self,
        topic_filter: str,
        *,
        within: FenceLike | None = None,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int | None = None,
    ) -> int:
        """Subscribe, to events published inside `within` only if given; returns the granted QoS."""
        properties = _properties(PacketTypes.SUBSCRIBE, _places(fence=within))
        if identifier is not None:
            properties.SubscriptionIdentifier = identifier
        options = SubscribeOptions(qos, no_local, retain_as_published, retain_handling)
        with self._plain_errors("cannot subscribe"):
            granted = await self._steadily(
                lambda: self._link.subscribe(topic_filter, options=options, properties=properties)
            )
        code = granted[0]
        return int(code) if isinstance(code, int) else int(code.value)

    async def unsubscribe(self, topic_filter: str) -> None:
        with self._plain_errors("cannot unsubscribe"):
            await self._steadily(lambda: self._link.unsubscribe(topic_filter))

    async def _steadily(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do what only counts at the broker it is said to: again if the client was sent to another meanwhile."""
        while True:
            await self._link.arrived()
            moves = self._link.moves
            try:
                return await call()
            except aiomqtt.MqttError:
                await self._link.arrived()
                if self._link.moves == moves:
                    raise

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        to: FenceLike | None = None,
        at: LocationLike | None = None,
        qos: int = 0,
        retain: bool = False,
        user: UserProperties = (),
        expiry_s: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
    ) -> None:
        """Publish, to subscribers inside `to` only if given; `at` says where, and shows it to them."""
        properties = _properties(PacketTypes.PUBLISH, (*_places(at=at, fence=to), *user))
        for name, value in (
            ("MessageExpiryInterval", expiry_s),
            ("ContentType", content_type),
            ("ResponseTopic", response_topic),
            ("CorrelationData", correlation_data),
        ):
            if value is not None:
                setattr(properties, name, value)
        await self._link.arrived()
        with self._plain_errors("cannot publish"):
            self._check_size(topic, payload, qos, properties)
        if at is not None:
            self._is_at(location_of(at))
        with self._plain_errors("cannot publish"):
            await self._link.publish(topic, payload, qos, retain, properties)

    def _check_size(self, topic: str, payload: bytes | str, qos: int, properties: Any) -> None:
        """Refuse what the broker would close the connection for."""
        if not topic:
            raise ValueError("the topic is empty")
        most = getattr(self._link.welcome, "MaximumPacketSize", None)
        size = len(topic.encode()) + len(payload.encode() if isinstance(payload, str) else payload)
        size += len(properties.pack()) + (4 if qos else 2)
        size += 2 + (size > 127) + (size > 16_383) + (size > 2_097_151)
        if most is not None and size > most:
            raise ValueError(f"it makes a packet of {size:,} bytes, and the broker takes at most {most:,}")

    async def _received(self) -> AsyncIterator[Message]:
        with self._plain_errors(f"the connection to {self.address} is lost"):
            async for received in self._link.messages:
                yield message_of(received)

    @property
    def messages(self) -> AsyncIterator[Message]:
        """Everything that arrives, until the connection ends."""
        return self._received()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._received()

    @contextmanager
    def _plain_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except RefusedError:
            raise
        except aiomqtt.MqttError as error:
            if self._link.refused is not None:
                raise self._link.refused from None
            self._told = True
            raise ClientError(f"{what}: {self._link.lost or ' '.join(str(error).split())}") from None
        except OSError as error:
            raise ClientError(f"{what}: {error}") from None
        except ValueError as error:
            raise UsageError(f"{what}: {error}") from None


def _default_port(context: ssl.SSLContext | None, websocket: bool) -> int:
    if websocket:
        return 9002 if context else 9001
    return 8883 if context else 1883


def _places(*, at: LocationLike | None = None, fence: FenceLike | None = None) -> UserProperties:
    found = []
    if at is not None:
        found.append((LOCATION_PROPERTY, location_text_of(at)))
    if fence is not None:
        found.append((FENCE_PROPERTY, fence_text_of(fence)))
    return tuple(found)


def _properties(packet: int, user: UserProperties) -> Any:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    if user:
        properties.UserProperty = list(user)
    return properties


def _paho_will(will: Will) -> aiomqtt.Will:
    properties = _properties(PacketTypes.WILLMESSAGE, _places(fence=will.to))
    if will.delay_s:
        properties.WillDelayInterval = will.delay_s
    return aiomqtt.Will(will.topic, will.payload, will.qos, will.retain, properties)
