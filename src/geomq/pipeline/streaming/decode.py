"""Spooled PUBLISH packets to the Arrow columns of the source. Runs on executors.

Owns the columns and what each holds. A malformed packet never stops a query: such an event comes as it
is, its payload the bytes that could not be read and its properties saying why. Who published what and when is taken
from a broker that promised to tell it; behind any other, every publisher could say so.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from geomq.errors import GeomqError, ProtocolError
from geomq.geo import parse_location
from geomq.mqtt.codec.cutter import body_bounds
from geomq.mqtt.codec.properties import Properties, decode_properties
from geomq.mqtt.codec.types import V5, PacketType
from geomq.mqtt.codec.wire import read_varint
from geomq.pipeline.streaming.connection import PACKET_SIZE_MAX
from geomq.vocabulary import (
    BROKER_PROPERTY,
    EVENT_PROPERTY,
    FENCE_PROPERTY,
    LOCATION_PROPERTY,
    PUBLISHER_PROPERTY,
    TIME_PROPERTY,
)

DDL = (
    "event_id string, topic string, payload binary, publisher string, location struct<lat: double, lon: double>,"
    " fence string, event_time timestamp, received_time timestamp, broker string, qos int, retain boolean,"
    " properties map<string, string>"
)

SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("publisher", pa.string()),
        pa.field("location", pa.struct([pa.field("lat", pa.float64()), pa.field("lon", pa.float64())])),
        pa.field("fence", pa.string()),
        pa.field("event_time", pa.timestamp("us", "UTC")),
        pa.field("received_time", pa.timestamp("us", "UTC")),
        pa.field("broker", pa.string()),
        pa.field("qos", pa.int32()),
        pa.field("retain", pa.bool_()),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
    ]
)

_TOLD = tuple(
    name.encode()
    for name in (
        EVENT_PROPERTY,
        TIME_PROPERTY,
        BROKER_PROPERTY,
        PUBLISHER_PROPERTY,
        LOCATION_PROPERTY,
        FENCE_PROPERTY,
    )
)
_EVENT, _TIME, _BROKER, _PUBLISHER, _LOCATION, _FENCE = range(6)
_PLACE = {name: place for place, name in enumerate(_TOLD)}
_NOTHING = (None,) * 6


class Origin(NamedTuple):
    """Where packets came from: the address for want of a broker's name, and the session their numbers belong to.

    `tells` is whether the broker vouches for the details of events.
    """

    address: str
    session: str
    version: int
    tells: bool = True


class Columns:
    """Gathers rows column by column; `batch` is what there is so far."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._lists: tuple[list[Any], ...] = tuple([] for _ in SCHEMA)
        self._places: dict[bytes, dict[str, float] | None] = {}

    def __len__(self) -> int:
        return len(self._lists[0])

    def add(self, data: bytes, spans: Sequence[tuple[int, int]], first_id: int, arrived_us: int) -> None:
        """Append the packets at `spans`, numbered from `first_id`."""
        version, session, tells = self._origin.version, self._origin.session, self._origin.tells
        ids, topics, payloads, publishers, places, fences, times, arrivals, brokers, qoses, retains, maps = self._lists
        for number, (start, end) in enumerate(spans, first_id):
            first = data[start]
            begin, pos = topic_end(data, start)
            topics.append(data[begin:pos].decode("utf-8", "replace"))
            qos = first >> 1 & 3
            if qos:
                pos += 2
            told: Sequence[bytes | None] = _NOTHING
            others: list[tuple[str, str]] = []
            if version == V5:
                try:
                    told, others, pos = _read_properties(data, pos, end)
                except (GeomqError, ValueError, IndexError) as error:
                    others = [("malformed", str(error)[:200])]
                if not tells:
                    told = (None, None, None, None, told[_LOCATION], told[_FENCE])
            event = told[_EVENT]
            ids.append(f"{session}:{number}" if event is None else event)
            payloads.append(data[pos:end])
            publishers.append(told[_PUBLISHER])
            places.append(None if told[_LOCATION] is None else self._place(told[_LOCATION]))
            fences.append(told[_FENCE])
            times.append(arrived_us if told[_TIME] is None else _micros(told[_TIME], arrived_us))
            arrivals.append(arrived_us)
            brokers.append(told[_BROKER] or self._origin.address)
            qoses.append(qos)
            retains.append(first & 1 == 1)
            maps.append(others)

    def batch(self) -> pa.RecordBatch:
        arrays = [_array(values, field.type) for values, field in zip(self._lists, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _place(self, text: bytes | None) -> dict[str, float] | None:
        assert text is not None
        if text not in self._places:
            if len(self._places) > 10_000:
                self._places.clear()
            try:
                lat, lon = parse_location(text.decode())
                self._places[text] = {"lat": lat, "lon": lon}
            except (GeomqError, UnicodeDecodeError):
                self._places[text] = None
        return self._places[text]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except pa.ArrowInvalid:
        # Not every broker refuses text that is no UTF-8.
        return pa.array(
            [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values], kind
        )


def _micros(text: bytes | None, default: int) -> int:
    assert text is not None
    return int(text) * 1000 if text.isdigit() and len(text) < 16 else default


def _read_properties(data: bytes, pos: int, end: int) -> tuple[Sequence[bytes | None], list[tuple[str, str]], int]:
    """The broker's own details, all other properties as texts, and where the payload begins."""
    start = pos
    length, pos = read_varint(data, pos, end)
    stop = pos + length
    if not length:
        return _NOTHING, [], pos
    if stop > end:
        raise ProtocolError("the properties are cut short")
    told: list[bytes | None] = [None] * 6
    others: list[tuple[str, str]] = []
    while pos < stop:
        if data[pos] != 0x26:
            properties, _ = decode_properties(data, start, end, PacketType.PUBLISH)
            others = _described(properties)
            # User properties that stand behind others are still to be looked at.
            for name, value in properties.user_properties:
                place = _PLACE.get(name.encode())
                if place is not None:
                    told[place] = value.encode()
            return told, others, stop
        middle = pos + 3 + (data[pos + 1] << 8 | data[pos + 2])
        name_bytes = data[pos + 3 : middle]
        pos = middle + 2 + (data[middle] << 8 | data[middle + 1])
        value_bytes = data[middle + 2 : pos]
        place = _PLACE.get(name_bytes)
        if place is None:
            others.append((name_bytes.decode("utf-8", "replace"), value_bytes.decode("utf-8", "replace")))
        else:
            told[place] = value_bytes
    if pos != stop:
        raise ProtocolError("the properties are cut short")
    return told, _unique(others), stop


def _described(properties: Properties) -> list[tuple[str, str]]:
    plain = ("content_type", "response_topic", "payload_format_indicator", "message_expiry_interval")
    found = [(name, str(value)) for name in plain if (value := getattr(properties, name)) is not None]
    if properties.correlation_data is not None:
        found.append(("correlation_data", properties.correlation_data.hex()))
    found += [pair for pair in properties.user_properties if pair[0].encode() not in _PLACE]
    return _unique(found)


def _unique(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A map has each name once: the last one counts."""
    return pairs if len(pairs) < 2 else list(dict(pairs).items())


def packets_of(data: bytes) -> list[tuple[int, int]]:
    """Where each packet begins and ends."""
    return list(_spans(data))


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    pos, size = 0, len(data)
    while pos < size:
        if pos + 1 < size and data[pos + 1] < 128:
            end = pos + 2 + data[pos + 1]
        else:
            bounds = body_bounds(data, pos, PACKET_SIZE_MAX, strict=False)
            end = size + 1 if bounds is None else bounds[1]
        if end > size:
            raise ProtocolError("spooled packets are cut short")
        yield pos, end
        pos = end


def topic_end(data: bytes, start: int) -> tuple[int, int]:
    """Where the topic of the PUBLISH at `start` begins and ends; the receiver made sure that it does."""
    body = start + 2
    while data[body - 1] > 127:
        body += 1
    begin = body + 2
    return begin, begin + (data[body] << 8 | data[body + 1])
