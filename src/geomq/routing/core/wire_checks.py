"""What the fields of a message between brokers must be besides their types: topics, filters, and properties of PUBLISH.

What was found good is remembered, within bounds: the same few are said over and over, and read again when they are
delivered.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from geomq.errors import ProtocolError
from geomq.mqtt.codec.decode import check_response_topic
from geomq.mqtt.codec.properties import Properties, decode_properties
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX, check_filter, check_topic
from geomq.mqtt.codec.types import PacketType

TOPICS_MAX = 10_000
PROPERTIES_MAX = 1_024
"""Few are the same, but each is needed twice: when it comes and when it is delivered."""

K = TypeVar("K", str, bytes)
V = TypeVar("V")


class Known(dict[K, V], Generic[K, V]):
    """`known[text]` is what `read` makes of a text; it raises a GeomqError if the text is not a good one."""

    def __init__(self, read: Callable[[K], V], *, count_max: int = TOPICS_MAX) -> None:
        super().__init__()
        self._read: Callable[[K], V] = read
        self._count_max = count_max

    def __missing__(self, text: K) -> V:
        found = self._read(text)
        if len(text) <= REMEMBERED_CHARS_MAX:
            if len(self) >= self._count_max:
                self.clear()
            self[text] = found
        return found


def _read_properties(data: bytes) -> Properties:
    """What a publisher may give an event."""
    properties, end = decode_properties(data, 0, len(data), PacketType.PUBLISH)
    if end != len(data):
        raise ProtocolError("the properties of an event are longer than their length field says")
    if properties.topic_alias is not None or properties.subscription_identifiers:
        raise ProtocolError("an event has properties that belong to a connection")
    check_response_topic(properties)
    return properties


_topics = Known(check_topic)
_filters = Known(check_filter)
_properties = Known(_read_properties, count_max=PROPERTIES_MAX)


def properties_of(data: bytes) -> Properties:
    """The properties of an event that has some; ProtocolError if a publisher cannot have given them."""
    return _properties[data]


def check_properties(data: bytes) -> bytes:
    """`data` if these are the properties of an event, or nothing."""
    if data:
        _properties[data]
    return data


def _all_filters(filters: tuple[str, ...]) -> tuple[str, ...]:
    for topic_filter in filters:
        _filters[topic_filter]
    return filters


_BY_NAME: Final[dict[str, Callable[[Any], Any]]] = {
    "topic": _topics.__getitem__,
    "topic_filter": _filters.__getitem__,
    "filters": _all_filters,
    "properties": check_properties,
}


def check_of(field: str) -> Callable[[Any], Any] | None:
    """What gives back a good value of a field of this name and raises a GeomqError at others; None if all are good."""
    return _BY_NAME.get(field)
