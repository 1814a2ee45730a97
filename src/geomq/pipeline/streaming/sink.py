"""Rows out of Spark: published with QoS 1, each with an id by which a repeat is known.

Spark may write a batch again after a failure. The id of a row, user property `geo-once`, is made of the query, the
partition, the batch and the row's place, so the same row has the same id however often it is sent. A GeoMQ broker drops
what it has seen; behind other brokers receivers can. Rows that are not computed alike the second time, in another order
say, must not be taken for those sent before: a fingerprint of the rows around it is part of each id.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from geomq.errors import DataError, TopicError, UsageError
from geomq.geo import location_text, make_location
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.topics import check_topic
from geomq.mqtt.codec.types import V5
from geomq.pipeline.streaming.options import SinkOptions
from geomq.pipeline.streaming.plainly import plainly
from geomq.pipeline.streaming.publisher import Publisher
from geomq.vocabulary import FENCE_PROPERTY, LOCATION_PROPERTY, ONCE_PROPERTY

GROUP_ROWS = 10_000
GROUP_BYTES = 16 << 20
_TEXT = (StringType,)
_COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "topic": (_TEXT, "string"),
    "payload": ((BinaryType, StringType), "binary or string"),
    "location": ((StructType, StringType), "struct<lat: double, lon: double> or string"),
    "fence": (_TEXT, "string"),
    "qos": ((IntegerType, ByteType, ShortType, LongType), "int"),
    "retain": ((BooleanType,), "boolean"),
    "properties": ((MapType,), "map<string, string>"),
}


def check_columns(schema: StructType) -> None:
    """The columns a sink can publish, or one line."""
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise UsageError(f"column {field.name} cannot be published; known columns are {', '.join(_COLUMNS)}")
        types, wanted = _COLUMNS[field.name]
        kind = field.dataType
        texts = not isinstance(kind, MapType) or (isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, _TEXT))
        if not (isinstance(kind, types) and texts):
            raise UsageError(f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}")
    for name in ("topic", "payload"):
        if name not in schema.fieldNames():
            raise UsageError(f"there is no column {name}; rows to publish need topic and payload")


@dataclass
class Published(WriterCommitMessage):
    """How many rows a task published."""

    rows: int


class EventWriter(DataSourceArrowWriter):
    """A batch `write`; a repeated task sends the same ids."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = options.name or secrets.token_hex(8)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish_rows(self._options, self._run, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Everything was acknowledged when the tasks ended."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What is published is published; a repeat is recognised by its id."""


class EventStreamWriter(DataSourceStreamArrowWriter):
    """A `writeStream`; a repeated batch sends the same ids."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = self._options.name or context.getLocalProperty("sql.streaming.queryId") or "spark"
        return publish_rows(self._options, query, int(context.getLocalProperty("streaming.sql.batchId") or 0), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything was acknowledged when the tasks ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What is published is published; a repeat is recognised by its id."""


def publish_rows(options: SinkOptions, run: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Published:
    """Publish what Spark hands to one task and wait until all of it is acknowledged."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    address = options.brokers[partition % len(options.brokers)]
    rows = 0
    publisher: Publisher | None = None
    try:
        for arrived in _together(batches):
            if publisher is None:
                # Only a task with rows connects. The id is new each time: an attempt never cuts off another.
                client_id = f"spark-{run[:12]}-{partition}-{secrets.token_hex(4)}"
                publisher = Publisher(
                    address,
                    options.login,
                    client_id,
                    connections=options.connections,
                    timeout_s=options.timeout_s,
                )
            rows = _publish(publisher, arrived, f"{run}.{partition}", batch, rows, options)
        if publisher is not None:
            publisher.flush()
    finally:
        if publisher is not None:
            publisher.close()
    return Published(rows)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined to large ones: a broker remembers something of each, and not endlessly much."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= GROUP_ROWS or sum(each.nbytes for each in group) >= GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group = []
    if group:
        yield pa.Table.from_batches(group)


def _publish(publisher: Publisher, rows: pa.Table, writer: str, batch: int, first: int, options: SinkOptions) -> int:
    """Hand over some rows, numbered from `first`; the number after the last."""
    nothing = [None] * rows.num_rows
    columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    around = _fingerprint(columns, first, options.connections)
    topics, payloads = columns["topic"], columns["payload"]
    qoses, retains = columns.get("qos", nothing), columns.get("retain", nothing)
    places, fences, others = (columns.get(name, nothing) for name in ("location", "fence", "properties"))
    checked: set[str] = set()
    for i in range(rows.num_rows):
        topic, payload, qos = topics[i], payloads[i], 1 if qoses[i] is None else qoses[i]
        if topic not in checked:
            _check_topic(topic)
            checked.add(topic)
        if qos not in (0, 1):
            raise DataError(f"qos must be 0 or 1, not {qos}")
        # An id that came with an event from elsewhere is not this row's.
        pairs = [(k, v or "") for k, v in others[i] or () if k != ONCE_PROPERTY]
        if places[i] is not None:
            pairs.append((LOCATION_PROPERTY, _place(places[i])))
        if fences[i] is not None:
            pairs.append((FENCE_PROPERTY, fences[i]))
        if options.login.version == V5:
            pairs.append((ONCE_PROPERTY, f"{writer}.{publisher.stream_of(topic)}.{around}:{batch << 32 | first + i}"))
        elif pairs:
            raise DataError("locations, fences and properties need MQTT 5; leave option version alone")
        publisher.publish(
            topic,
            payload.encode() if isinstance(payload, str) else payload or b"",
            qos,
            retain=bool(retains[i]),
            properties=Properties(user_properties=tuple(pairs)) if pairs else NO_PROPERTIES,
        )
    return first + int(rows.num_rows)


def _fingerprint(columns: dict[str, list[object]], first: int, connections: int) -> str:
    """Of rows, where in their partition they are and how they are shared out: what decides which ids they get."""
    return hashlib.blake2b(repr((first, connections, columns)).encode(), digest_size=8).hexdigest()


def _check_topic(topic: str | None) -> None:
    if topic is None:
        raise DataError("a row has no topic")
    try:
        check_topic(topic)
    except TopicError as error:
        raise DataError(f"a row's topic: {error}") from None


def _place(place: object) -> str:
    if isinstance(place, str):
        return place
    assert isinstance(place, dict)
    lat, lon = place.get("lat"), place.get("lon")
    if lat is None or lon is None:
        raise DataError("a row's location needs both lat and lon")
    return location_text(make_location(lat, lon))
