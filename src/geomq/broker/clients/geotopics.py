"""Geo-context in words: what the `$geo/...` topics, the `geo-...` user properties and OwnTracks payloads say.

Pure reading of text. Whose location or fence it is, and what follows from it, is decided elsewhere.
"""

from typing import Final, NamedTuple

import msgspec

from geomq.errors import GeometryError, TopicError
from geomq.geo import Location, make_location, parse_location
from geomq.mqtt.codec.topics import check_filter, check_topic, split_shared
from geomq.vocabulary import FENCE_PREFIX, FROM_PREFIX, GEO_PREFIX, LOCATION_TOPIC, TO_PREFIX

_NAME_MAX: Final = 128
_LOCATION_BYTES_MAX: Final = 16_384


class FenceTopic(NamedTuple):
    """`$geo/fence/<name>`: define the fence, or forget it."""

    name: str


class ToTopic(NamedTuple):
    """`$geo/to/<name>/<topic>`: publish to the topic with that fence."""

    name: str
    topic: str


class LocationTopic(NamedTuple):
    """`$geo/location`: the client says where it is."""


def is_geo(topic: str) -> bool:
    return topic.startswith(GEO_PREFIX)


def is_order(topic: str) -> bool:
    """Whether publishing to it is an order to the broker (a location, a fence) and no event."""
    return topic == LOCATION_TOPIC or topic.startswith(FENCE_PREFIX)


def parse_geo_topic(topic: str) -> FenceTopic | ToTopic | LocationTopic:
    """What publishing to this `$geo/...` topic means; TopicError if it means nothing."""
    if topic == LOCATION_TOPIC:
        return LocationTopic()
    if topic.startswith(FENCE_PREFIX):
        return FenceTopic(_name(topic[len(FENCE_PREFIX) :]))
    if topic.startswith(TO_PREFIX):
        name, slash, rest = topic[len(TO_PREFIX) :].partition("/")
        if not slash or rest.startswith(GEO_PREFIX):
            raise TopicError(f"{topic[:80]!r} is not of the form $geo/to/<name>/<topic>")
        return ToTopic(_name(name), check_topic(rest))
    raise TopicError(f"nothing can be published to {topic[:80]!r}")


def _name(name: str) -> str:
    if not name or len(name) > _NAME_MAX or "/" in name:
        raise TopicError(f"a fence name is one topic level of 1 to {_NAME_MAX} characters")
    return name


def from_prefix(name: str) -> str:
    """How filters of events from this fence begin, behind the name of a share group if there is one."""
    return f"{FROM_PREFIX}{name}/"


class Reading(NamedTuple):
    """A subscription's filter taken apart: `prefix + plain` is what the client wrote."""

    prefix: str
    plain: str
    group: str | None
    fence_name: str | None
    private: bool

    @property
    def whole(self) -> str:
        return self.prefix + self.plain


def read_filter(topic_filter: str) -> Reading:
    """Take `$share/<group>/` and `$geo/from/<name>/` off a filter.

    Other filters under `$geo/` are private: they match only what the broker sends this client.
    """
    group, rest = split_shared(topic_filter) if topic_filter.startswith("$share/") else (None, topic_filter)
    name = None
    if rest.startswith(FROM_PREFIX):
        name, slash, rest = rest[len(FROM_PREFIX) :].partition("/")
        if not slash or not rest or rest.startswith(GEO_PREFIX):
            raise TopicError(f"{topic_filter[:80]!r} is not of the form $geo/from/<name>/<filter>")
        _name(name)
        check_filter(rest)
    prefix = topic_filter[: len(topic_filter) - len(rest)]
    return Reading(prefix, rest, group, name, name is None and rest.startswith(GEO_PREFIX))


def payload_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise GeometryError("the payload is not UTF-8 text") from None


def parse_location_payload(payload: bytes) -> Location | None:
    """`lat,lon`, a geo URI or OwnTracks' JSON; an empty payload withdraws the location."""
    if not payload:
        return None
    if payload[:1] == b"{":
        location = owntracks_location(payload)
        if location is None:
            raise GeometryError("the JSON is not an OwnTracks location")
        return location
    return parse_location(payload_text(payload[:_LOCATION_BYTES_MAX]))


class _OwnTracks(msgspec.Struct, gc=False):
    kind: str = msgspec.field(name="_type", default="")
    lat: float | None = None
    lon: float | None = None


_owntracks = msgspec.json.Decoder(_OwnTracks)


def owntracks_location(payload: bytes) -> Location | None:
    """The place in an OwnTracks message; None if it is of another kind, GeometryError if it is nonsense."""
    if len(payload) > _LOCATION_BYTES_MAX:
        raise GeometryError(f"a location message is longer than {_LOCATION_BYTES_MAX} bytes")
    try:
        said = _owntracks.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise GeometryError("the location message is not OwnTracks JSON") from None
    if said.kind != "location":
        return None
    if said.lat is None or said.lon is None:
        raise GeometryError("the OwnTracks location has no lat or no lon")
    return make_location(said.lat, said.lon)
