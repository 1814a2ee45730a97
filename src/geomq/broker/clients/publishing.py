"""PUBLISH from a client to the routing core: geo-context, rights, retained events, and the answer.

Rights are checked on what remains after `$geo` rewriting, for live publishes and wills alike.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from geomq.broker.clients.following import Following
from geomq.broker.clients.geocontext import GeoContext
from geomq.broker.clients.geotopics import (
    FenceTopic,
    LocationTopic,
    is_geo,
    is_order,
    owntracks_location,
    parse_geo_topic,
    parse_location_payload,
    payload_text,
)
from geomq.broker.clients.mounting import mounted_topic
from geomq.broker.clients.once import Writers
from geomq.broker.clients.retention import About, Retention
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.security.acl import Rights
from geomq.broker.state.budget import SHORT_OF_MEMORY, Shed
from geomq.broker.state.client import Client
from geomq.errors import GeometryError, TopicError
from geomq.geo import Fence, parse_location
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, encode_properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, PacketType
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.events import ClientPublished, RetainedChanged
from geomq.routing.core.model import ClientId
from geomq.vocabulary import FENCE_PROPERTY, LOCATION_PROPERTY, ONCE_PROPERTY

BROKER: Final = ClientId("\0broker")
"""Who publishes the broker's own events."""


class EventRefused(Exception):  # noqa: N818
    """The event is refused; the client gets the reason if its version has one."""

    def __init__(self, reason: ReasonCode, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Publishing:
    """Takes in every event. `send_qos1` sends a plain one of QoS 1 or 2 if it is known to whom."""

    def __init__(
        self,
        core: Core,
        driver: Driver,
        geo: GeoContext,
        retention: Retention,
        following: Following,
        *,
        send_qos1: Callable[[ApplicationMessage], int | None],
    ) -> None:
        self._core = core
        self._handle = driver.handle
        self._following = following
        self._send_qos1 = send_qos1
        self._geo = geo
        self._retention = retention
        self.writers = Writers(core.store)

    def receive(self, client: Client, packet: Publish) -> bool:
        """A connected client published; whether its event was routed now."""
        core = self._core
        message = client.session.accept(packet, core.now_s())
        if message is None:
            core.counts.other_publishes += 1
            self._answer(client, packet, ReasonCode.SUCCESS, None)
            return False
        if is_order(message.topic):
            core.counts.other_publishes += 1
        else:
            core.counts.events_received += 1
        if packet.qos and (full := core.outbox.full):
            self._refuse_for_space(client, packet, full)
            return False
        if packet.qos:
            core.pressure.begin()
        try:
            delivered = self.publish(client, _mounted(client, message))
        except EventRefused as refused:
            core.counts.events_refused += 1
            if core.tracer is not None:
                core.tracer.refused(client, message, str(refused))
            self._answer(client, packet, refused.reason, str(refused))
            if refused.reason == ReasonCode.PAYLOAD_FORMAT_INVALID and (not packet.qos or client.session.version != V5):
                self._geo.complain(client, str(refused))
            return False
        if packet.qos:
            lonely = delivered == 0 and not core.links.active
            self._answer(
                client,
                packet,
                ReasonCode.NO_MATCHING_SUBSCRIBERS if lonely else ReasonCode.SUCCESS,
                None,
            )
        return True

    def publish(self, client: Client, message: ApplicationMessage) -> int:
        """Route an event of this client; how many deliveries it made. Raises EventRefused."""
        fence: Fence | None = None
        once: str | None = None
        try:
            if message.topic.startswith("$"):
                rewritten = self._special(client, message)
                if rewritten is None:
                    return 1
                message, fence = rewritten
            if message.properties is not NO_PROPERTIES and message.properties.user_properties:
                once = message.properties.user(ONCE_PROPERTY)
                if once is not None and self.writers.repeats(client.user, once):
                    self._core.counts.events_repeated += 1
                    return 1
                fence = self._read_properties(client, message, fence)
            elif self._core.config.geo.owntracks_topics and self._follows(client, message.topic):
                self._follow(client, message.payload)
        except GeometryError as error:
            raise EventRefused(ReasonCode.PAYLOAD_FORMAT_INVALID, str(error)) from None
        except TopicError as error:
            raise EventRefused(ReasonCode.TOPIC_NAME_INVALID, str(error)) from None
        self._check(client, message, fence)
        if message.qos and not message.retain and fence is None and message.properties is NO_PROPERTIES:
            delivered = self._send_qos1(message)
            if delivered is not None:
                return delivered
        delivered = self.route(client.id, message, fence, _about(client, fence))
        if once is not None:
            self.writers.note(client.user, once)
        return delivered

    def route(self, publisher: ClientId, message: ApplicationMessage, fence: Fence | None, about: About) -> int:
        """Keep it if it is retained, then hand it to the routing core."""
        core = self._core
        if message.retain and publisher is not BROKER and self._retention.would_grow(message):
            self._check_growth()
        if message.retain and not self._retention.put(message, about, stored=publisher is not BROKER):
            raise EventRefused(ReasonCode.QUOTA_EXCEEDED, "the limit on retained messages is reached")
        properties = b""
        if core.links.active and message.properties is not NO_PROPERTIES:
            properties = encode_properties(message.properties, PacketType.PUBLISH)
        event = ClientPublished(
            publisher,
            message.topic,
            fence,
            None,
            message.payload,
            message.qos,
            message.retain,
            properties,
            int(core.wall_s() * 1000),
            None if message.expires_at is None else int(message.expires_at * 1000),
        )
        if not message.retain or publisher is BROKER or not core.node.retained.active:
            return self._handle(event, message)
        changed = RetainedChanged(message.topic, event.at_ms, not message.payload, core.node.next_id)
        delivered = self._handle(event, message)
        self._handle(changed)  # peers learn of it after the event itself
        return delivered

    def announce(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """The broker itself publishes."""
        self.route(BROKER, ApplicationMessage(topic, payload, 0, retain), None, About())

    def _check_growth(self) -> None:
        """Refuse what would be kept, if memory runs short."""
        if self._core.budget.sheds >= Shed.GROWTH:
            self._core.counts.memory_refused += 1
            raise EventRefused(ReasonCode.QUOTA_EXCEEDED, SHORT_OF_MEMORY)

    def _special(self, client: Client, message: ApplicationMessage) -> tuple[ApplicationMessage, Fence | None] | None:
        """A `$` topic: None if it was an order to the broker, else the real event and its fence."""
        topic = message.topic
        if not is_geo(topic):
            _check_not_sys(topic)
            return message, None
        meaning = parse_geo_topic(topic)
        if isinstance(meaning, LocationTopic):
            self._spend_location(client)
            self._geo.move(client, parse_location_payload(message.payload))
            return None
        if isinstance(meaning, FenceTopic):
            if message.payload and meaning.name not in client.fences:
                self._check_growth()
            self._geo.define_fence(client, meaning.name, payload_text(message.payload))
            return None
        _check_not_sys(meaning.topic)
        fence = client.fences.get(meaning.name)
        if fence is None:
            raise GeometryError(f"no fence named {meaning.name!r}; publish it to $geo/fence/{meaning.name} first")
        return msgspec.structs.replace(message, topic=meaning.topic), fence

    def _read_properties(self, client: Client, message: ApplicationMessage, fence: Fence | None) -> Fence | None:
        place = message.properties.user(LOCATION_PROPERTY)
        if place is not None:
            location = parse_location(place)
            self._spend_location(client)
            self._geo.move(client, location)
        text = message.properties.user(FENCE_PROPERTY)
        return fence if text is None else self._core.fence_texts[text]

    def _spend_location(self, client: Client) -> None:
        bucket = client.location_bucket
        if bucket is not None and not bucket.take(now=self._core.loop.time()):
            self._core.counts.locations_dropped += 1
            raise EventRefused(ReasonCode.QUOTA_EXCEEDED, "too many location updates")

    def _follows(self, client: Client, topic: str) -> bool:
        """Whether the client says on this topic where it is."""
        return self._following.is_owntracks(topic.removeprefix(client.session.mount))

    def _follow(self, client: Client, payload: bytes) -> None:
        """OwnTracks: take the place if there is one; whatever else is in the payload is an event like any."""
        bucket = client.location_bucket
        if bucket is not None and not bucket.take(now=self._core.loop.time()):
            self._core.counts.locations_dropped += 1
            return
        try:
            location = owntracks_location(payload)
        except GeometryError:
            self._core.counts.geo_errors += 1
            return
        if location is not None:
            self._geo.move(client, location)

    def _check(self, client: Client, message: ApplicationMessage, fence: Fence | None) -> None:
        rights: Rights = client.rights
        topic = message.topic
        if topic.count("/") >= self._core.config.limits.topic_levels_max:
            raise EventRefused(ReasonCode.TOPIC_NAME_INVALID, "the topic has too many levels")
        most = self._core.config.limits.payload_bytes_max
        if most and len(message.payload) > most:
            raise EventRefused(ReasonCode.QUOTA_EXCEEDED, f"the payload is larger than {most} bytes")
        if rights.all_allowed:
            return
        if not rights.may_write(topic):
            raise EventRefused(ReasonCode.NOT_AUTHORIZED, f"not authorized to publish to {topic[:80]!r}")
        if not rights.may_publish_from(topic, client.location):
            raise EventRefused(ReasonCode.NOT_AUTHORIZED, f"not authorized to publish to {topic[:80]!r} from here")
        if not rights.may_publish_into(topic, fence):
            raise EventRefused(
                ReasonCode.NOT_AUTHORIZED, f"not authorized to publish to {topic[:80]!r} into this fence"
            )

    def _refuse_for_space(self, client: Client, packet: Publish, text: str) -> None:
        """Say so where MQTT has words for it, end the connection where it has none; the identifier is free again."""
        self._core.counts.events_refused += 1
        self._core.counts.memory_refused += self._core.outbox.crowded
        reason = ReasonCode.QUOTA_EXCEEDED
        refusal = client.session.answer(packet.packet_id, packet.qos, reason, text)
        if client.session.version != V5:
            raise ProtocolViolation(text, reason)
        assert client.connection is not None
        client.connection.send(refusal)

    def _answer(self, client: Client, packet: Publish, reason: ReasonCode, text: str | None) -> None:
        if packet.qos and self._core.pressure.active:
            self._core.pressure.answer(client, packet.packet_id, packet.qos, reason, text)
        elif packet.qos and client.connection is not None:
            answer = client.session.answer(packet.packet_id, packet.qos, reason, text)
            self._core.outbox.hold(client.connection, answer)


def _mounted(client: Client, message: ApplicationMessage) -> ApplicationMessage:
    """What the client published, under the topic that the broker knows. Raises EventRefused where that is invalid."""
    mount = client.session.mount
    if not mount:
        return message
    try:
        return msgspec.structs.replace(message, topic=mounted_topic(mount, message.topic))
    except TopicError as error:
        raise EventRefused(ReasonCode.TOPIC_NAME_INVALID, str(error)) from None


def _about(client: Client, fence: Fence | None) -> About:
    return About(fence, client.location, client.id, client.user, client.place)


def _check_not_sys(topic: str) -> None:
    if topic.startswith("$SYS/") or topic == "$SYS":
        raise EventRefused(ReasonCode.NOT_AUTHORIZED, "$SYS belongs to the broker")
