"""What broadcast groups send to the cloud, as PUBLISH packets of any MQTT 5 broker, and back. No state of a connection.

An event is published on its own topic with its own payload, QoS, retain flag and properties, so clients of the cloud
see a plain message. In front of its user properties stand ours, `geo-event` (the event's id) as the last of them:

    geo-publisher, geo-event-location, geo-event-fence, geo-proof, geo-event

Whatever comes after `geo-event` is the publisher's; its `geo-location` and `geo-fence` become `own-geo-...` on the way,
so that a cloud which understands them (another GeoMQ broker) does not take them for its client's, the leader's.

A message without `geo-event` is from a client of the cloud itself. Such a client may say `geo-location` and `geo-fence`
like any client; with a fence that cannot be read the message is refused, because without its fence it would reach
those it is not for. Brokers that share a key sign what they send (`geo-proof`) and take for a broker's only what is
signed with it.
"""

import hashlib
import hmac
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec

from geomq.errors import UNREADABLE, GeometryError
from geomq.geo import Fence, fence_text, location_text, parse_location
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties, decode_properties, encode_properties
from geomq.mqtt.codec.types import PacketType
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.groups.messages import CloudAnnounce, CloudAnnounced, CloudPublished
from geomq.vocabulary import (
    EVENT_FENCE_PROPERTY,
    EVENT_LOCATION_PROPERTY,
    EVENT_PROPERTY,
    FENCE_PROPERTY,
    LEADER_PROPERTY,
    LOCATION_PROPERTY,
    PROOF_PROPERTY,
    PUBLISHER_PROPERTY,
)

UNKNOWN_PUBLISHER: Final = ClientId("\0cloud")
"""Who published what a client of the cloud published; MQTT does not tell."""

ANNOUNCEMENT_BYTES_MAX: Final = 1024
NUMBER_MAX: Final = (1 << 63) - 1
RETAINED_MAX: Final = 16_384

_EVENT_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9._@-]{0,191}):(\d{1,19}):(\d{1,19})", re.ASCII)
_OURS = frozenset({PUBLISHER_PROPERTY, EVENT_LOCATION_PROPERTY, EVENT_FENCE_PROPERTY, PROOF_PROPERTY, EVENT_PROPERTY})
_UNSIGNED = {LOCATION_PROPERTY: EVENT_LOCATION_PROPERTY, FENCE_PROPERTY: EVENT_FENCE_PROPERTY}
"""What a client of the cloud may say about itself, and what that is for us."""
_OWN = "own-"
_ESCAPED = re.compile(f"(?:{_OWN})*(?:{LOCATION_PROPERTY}|{FENCE_PROPERTY})")


class Announcement(msgspec.Struct, frozen=True):
    """The payload on the leaders' topic, as JSON."""

    leader: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    lcm: float


_announcements = msgspec.json.Decoder(Announcement)


def fetch_identifier(number: int) -> int:
    """The subscription identifier under which filter `number` asks for what the cloud has retained."""
    return 2 * number


def live_identifier(number: int) -> int:
    """The subscription identifier under which filter `number` receives what is published from then on."""
    return 2 * number + 1


def publish_of_event(event: Event, key: bytes | None = None) -> Publish:
    """The PUBLISH that carries an event, signed if there is a key; ProtocolError if its properties are no MQTT."""
    own = NO_PROPERTIES
    if event.properties:
        own, _ = decode_properties(event.properties, 0, len(event.properties), PacketType.PUBLISH)
    ours: list[tuple[str, str]] = [(PUBLISHER_PROPERTY, event.publisher)]
    if event.location is not None:
        ours.append((EVENT_LOCATION_PROPERTY, location_text(event.location)))
    if event.fence is not None:
        ours.append((EVENT_FENCE_PROPERTY, fence_text(event.fence)))
    event_id = (EVENT_PROPERTY, str(event.id))
    if key is not None:
        ours.append((PROOF_PROPERTY, _proof(key, event.topic, event.payload, dict((*ours, event_id)))))
    ours.append(event_id)
    theirs = [(_OWN + name if _ESCAPED.fullmatch(name) else name, value) for name, value in own.user_properties]
    properties = msgspec.structs.replace(own, user_properties=(*ours, *theirs))
    return Publish(event.topic, event.payload, event.qos, event.retain, properties=properties)


def _proof(key: bytes, topic: str, payload: bytes, carried: dict[str, str]) -> str:
    """A code over everything a broker vouches for."""
    names = (EVENT_PROPERTY, PUBLISHER_PROPERTY, EVENT_LOCATION_PROPERTY, EVENT_FENCE_PROPERTY)
    said = msgspec.msgpack.encode([topic, payload, *(carried.get(name) for name in names)])
    return hmac.digest(key, said, hashlib.sha256)[:16].hex()


def publish_of_announcement(announce: CloudAnnounce) -> Publish:
    said = msgspec.json.encode(Announcement(announce.leader, announce.lcm))
    mark = Properties(user_properties=((LEADER_PROPERTY, announce.leader),))
    return Publish(announce.topic, said, properties=mark)


def event_id_of(text: str) -> EventId | None:
    """The id that the text stands for, or None."""
    found = _EVENT_ID.fullmatch(text)
    if found is None:
        return None
    epoch, sequence = int(found[2]), int(found[3])
    return EventId(BrokerId(found[1]), epoch, sequence) if max(epoch, sequence) <= NUMBER_MAX else None


class _Latest(NamedTuple):
    """The latest message without an id, and the subscriptions it came for so far."""

    content: tuple[object, ...]
    identifiers: set[int]


class CloudReader:
    """Reads what the cloud sends. Knows from which messages without an id the last ones were made.

    Such messages get an id of this reader: `broker@cloud`, its epoch, a running number. Two brokers that receive the
    same message from the cloud give it two ids; nothing in the packet would tell a copy from an equal message.
    """

    def __init__(
        self,
        *,
        me: BrokerId,
        cloud: BrokerId,
        epoch: int,
        leaders_topic: str,
        fence_of: Callable[[str], Fence],
        is_ours: Callable[[BrokerId], bool],
        key: bytes | None = None,
    ) -> None:
        self.refused = 0
        self.key = key
        self._origin = BrokerId(f"{me}@{cloud}")
        self._cloud = cloud
        self._epoch = epoch
        self._leaders_topic = leaders_topic
        self._fence_of = fence_of
        self._is_ours = is_ours
        self._sequence = 0
        self._latest: dict[int, _Latest] = {}
        self._retained: OrderedDict[str, tuple[int, EventId]] = OrderedDict()

    def read(self, publish: Publish) -> CloudPublished | CloudAnnounced | None:
        """What a PUBLISH of the cloud says; None for a copy of the message before, or if it makes no sense, or for what
        brokers of this federation have retained, which they send each other."""
        if publish.topic == self._leaders_topic:
            return self._announced(publish)
        own, carried = self._split(publish)
        place, fence_said = carried.get(EVENT_LOCATION_PROPERTY), carried.get(EVENT_FENCE_PROPERTY)
        event_id = event_id_of(carried.get(EVENT_PROPERTY, ""))
        if event_id is None and (own.user(LEADER_PROPERTY) is not None or self._is_copy(publish)):
            return None
        if event_id is not None and _fetched(publish) and self._is_ours(event_id.origin):
            return None
        try:
            location = None if place is None else parse_location(place)
            fence = None if fence_said is None else self._fence_of(fence_said)
        except GeometryError:
            self.refused += 1
            return None
        event = Event(
            self._named(publish) if event_id is None else event_id,
            publish.topic,
            ClientId(carried.get(PUBLISHER_PROPERTY, UNKNOWN_PUBLISHER)) if event_id is not None else UNKNOWN_PUBLISHER,
            location,
            fence,
            publish.payload,
            publish.qos,
            publish.retain,
            b"" if own == NO_PROPERTIES else encode_properties(own, PacketType.PUBLISH),
        )
        return CloudPublished(event)

    def _split(self, publish: Publish) -> tuple[Properties, dict[str, str]]:
        """The publisher's own properties, and a broker's about the event or, without one, the publisher."""
        pairs = publish.properties.user_properties
        own = msgspec.structs.replace(publish.properties, subscription_identifiers=())
        carried: dict[str, str] = {}
        for position, (name, value) in enumerate(pairs):
            if name not in _OURS:
                break
            carried[name] = value
            if name == EVENT_PROPERTY:
                if event_id_of(value) is None or not self._believed(publish, carried):
                    break
                theirs = tuple((_unescaped(name), value) for name, value in pairs[position + 1 :])
                return msgspec.structs.replace(own, user_properties=theirs), carried
        said = {_UNSIGNED[name]: value for name, value in reversed(pairs) if name in _UNSIGNED}
        return own, said

    def _believed(self, publish: Publish, carried: dict[str, str]) -> bool:
        if self.key is None:
            return True
        proof = _proof(self.key, publish.topic, publish.payload, carried)
        return hmac.compare_digest(proof.encode(), carried.get(PROOF_PROPERTY, "").encode())

    def _announced(self, publish: Publish) -> CloudAnnounced | None:
        """A leader's announcement; one that is retained says nothing about now."""
        if publish.retain or len(publish.payload) > ANNOUNCEMENT_BYTES_MAX:
            return None
        try:
            said = _announcements.decode(publish.payload)
        except UNREADABLE:
            self.refused += 1
            return None
        return CloudAnnounced(publish.topic, BrokerId(said.leader), said.lcm) if math.isfinite(said.lcm) else None

    def _is_copy(self, publish: Publish) -> bool:
        """Whether this is the message before once more, for another of our overlapping subscriptions.

        A broker may send one copy for each, in a row; each names its subscription. One that names a subscription the
        last message came for already is a new message, however equal.
        """
        identifiers = set(publish.properties.subscription_identifiers)
        if _fetched(publish) or not identifiers:
            return False
        content = (
            publish.topic,
            publish.payload,
            msgspec.structs.replace(publish.properties, subscription_identifiers=(), message_expiry_interval=None),
        )
        latest = self._latest.get(publish.qos)
        if latest is not None and latest.content == content and identifiers.isdisjoint(latest.identifiers):
            latest.identifiers.update(identifiers)
            return True
        self._latest[publish.qos] = _Latest(content, identifiers)
        return False

    def _named(self, publish: Publish) -> EventId:
        """The id of a message of a client of the cloud.

        What the cloud had retained is the same whenever and by whomever it is fetched.
        """
        digest = _digest(publish) if publish.retain else 0
        if _fetched(publish):
            known = self._retained.get(publish.topic)
            if known is not None and known[0] == digest:
                return known[1]
            return EventId(self._cloud, 0, digest)
        self._sequence += 1
        named = EventId(self._origin, self._epoch, self._sequence)
        if publish.retain:
            self._retained[publish.topic] = (digest, named)
            self._retained.move_to_end(publish.topic)
            if len(self._retained) > RETAINED_MAX:
                self._retained.popitem(last=False)
        return named


def _fetched(publish: Publish) -> bool:
    """Whether the cloud sends this because we subscribed, not because somebody published it now."""
    identifiers = publish.properties.subscription_identifiers
    return publish.retain and bool(identifiers) and all(number % 2 == 0 for number in identifiers)


def _digest(publish: Publish) -> int:
    content = hashlib.blake2b(digest_size=8)
    for part in (publish.topic.encode(), publish.payload, repr(publish.properties.user_properties).encode()):
        content.update(len(part).to_bytes(4, "big") + part)
    return int.from_bytes(content.digest(), "big") >> 1


def _unescaped(name: str) -> str:
    return name.removeprefix(_OWN) if _ESCAPED.fullmatch(name) else name
