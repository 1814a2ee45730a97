"""Reads trace files, only what is asked for: the records of one event, of some clients, or of what was published.

A trace is given as files and directories. Files are read one at a time, so that memory holds one file and what was
picked from it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from geomq.errors import ConfigError, DataError, UsageError
from geomq.extras import need
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.model import EventId
from geomq.routing.federation.outline import OUTLINE_KEY, Outline, read_outline
from geomq.routing.trace.records import TraceRecord
from geomq.workload.files import read_table

if TYPE_CHECKING:
    import pyarrow as pa


class Picked(NamedTuple):
    """Records in the order of time, the brokers whose trace was read, when it begins and ends, and its steps."""

    records: list[TraceRecord]
    brokers: frozenset[str]
    first_ms: float
    last_ms: float
    steps: frozenset[str]


def trace_paths(given: Sequence[Path]) -> list[tuple[Path, bool]]:
    """Every file, and whether it was named itself: one that was found in a directory may vanish again."""
    found: list[tuple[Path, bool]] = []
    for path in given:
        if path.is_dir():
            inside = sorted(path.glob("*.parquet"))
            if not inside:
                raise DataError(f"{path} contains no trace files")
            found += ((one, False) for one in inside)
        else:
            found.append((path, True))
    return found


def trace_rows(given: Sequence[Path]) -> int:
    """How many records there are."""
    need("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    for path, _ in trace_paths(given):
        try:
            rows += pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a readable trace file: {str(error).splitlines()[0]}") from None
    return rows


def read_trace_outline(given: Sequence[Path]) -> Outline | None:
    """The federation as the latest file that knows it says."""
    need("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path, _ in reversed(trace_paths(given)):
        try:
            metadata = pq.read_schema(path).metadata or {}
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a readable trace file: {str(error).splitlines()[0]}") from None
        if OUTLINE_KEY in metadata:
            try:
                return read_outline(metadata[OUTLINE_KEY])
            except ConfigError as error:
                raise DataError(f"{path} is not a readable trace file: {error}") from None
    return None


def trace_tables(given: Sequence[Path]) -> "Iterator[tuple[Path, pa.Table]]":
    """The tables of all files there are; a file that its broker removes meanwhile is left out."""
    for path, named in trace_paths(given):
        try:
            table = read_table(path, "trace")
        except DataError:
            if named or path.exists():
                raise
            continue
        yield path, table


def read_trace(given: Sequence[Path], pick: "Callable[[pa.Table], pa.Array]") -> Picked:
    """The records that `pick` chooses, as a column of booleans for each file's table."""
    need("pyarrow")
    records: list[TraceRecord] = []
    brokers: set[str] = set()
    steps: set[str] = set()
    moments: list[float] = []
    for path, table in trace_tables(given):
        if table.num_rows:
            brokers.update(table.column("broker").unique().to_pylist())
            steps.update(table.column("step").unique().to_pylist())
            moments += _span(table)
            records += _records(table.filter(pick(table)), path)
    records.sort(key=lambda record: record.t_ms)
    if not moments:
        raise DataError("the trace is empty")
    return Picked(records, frozenset(brokers), min(moments), max(moments), frozenset(steps))


def of_event(event_id: EventId, clients: Iterable[str]) -> "Callable[[pa.Table], pa.Array]":
    """Everything about an event, and everything these clients did."""
    import pyarrow.compute as pc

    names, text = list(clients), str(event_id)

    def pick(table: "pa.Table") -> "pa.Array":
        about = pc.equal(table.column("event_id"), text)
        return pc.fill_null(pc.or_kleene(about, _of_clients(table, names)), False)

    return pick


def of_event_and_subscriptions(event_id: EventId) -> "Callable[[pa.Table], pa.Array]":
    """Everything about an event, and what anybody subscribed to."""
    import pyarrow.compute as pc

    def pick(table: "pa.Table") -> "pa.Array":
        about = pc.equal(table.column("event_id"), str(event_id))
        return pc.fill_null(pc.or_kleene(about, pc.equal(table.column("step"), "subscribed")), False)

    return pick


def of_topic(
    topic_filter: str | None, publisher: str | None, span: tuple[float | None, float | None], clients: Iterable[str]
) -> "Callable[[pa.Table], pa.Array]":
    """What was published, or refused, on these topics by this client and then; and what some clients did."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = list(clients)

    def pick(table: pa.Table) -> pa.Array:
        tried = pc.and_(pc.equal(table.column("step"), "dropped"), pc.is_null(table.column("event_id")))
        chosen = pc.or_(pc.equal(table.column("step"), "published"), tried)
        if topic_filter is not None:
            topics = [t for t in table.column("topic").unique().to_pylist() if t and topic_matches(topic_filter, t)]
            chosen = pc.and_(chosen, pc.is_in(table.column("topic"), pa.array(topics, pa.string())))
        if publisher is not None:
            chosen = pc.and_kleene(chosen, pc.equal(table.column("client"), publisher))
        if span[0] is not None:
            chosen = pc.and_kleene(chosen, pc.greater_equal(table.column("t_ms"), span[0]))
        if span[1] is not None:
            chosen = pc.and_kleene(chosen, pc.less_equal(table.column("t_ms"), span[1]))
        return pc.fill_null(pc.or_kleene(chosen, _of_clients(table, names)), False)

    return pick


def of_events(event_ids: Iterable[EventId]) -> "Callable[[pa.Table], pa.Array]":
    """Everything about these events."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array([str(event_id) for event_id in event_ids], pa.string())
    return lambda table: pc.is_in(table.column("event_id"), wanted)


def everything(table: "pa.Table") -> "pa.Array":
    """Every record there is."""
    import pyarrow as pa

    return pa.repeat(True, table.num_rows)


def _of_clients(table: "pa.Table", names: list[str]) -> "pa.Array":
    """What these clients did and what was said about them; not their events and deliveries."""
    import pyarrow as pa
    import pyarrow.compute as pc

    theirs = pc.is_in(table.column("client"), pa.array(names, pa.string()))
    return pc.and_(theirs, pc.is_null(table.column("event_id")))


def _span(table: "pa.Table") -> list[float]:
    import pyarrow.compute as pc

    extremes = pc.min_max(table.column("t_ms")).as_py()
    return [value for value in extremes.values() if value is not None]


def _records(table: "pa.Table", path: Path) -> Iterator[TraceRecord]:
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        record = TraceRecord(*row)
        if record.t_ms is None or record.broker is None or record.step is None:
            raise DataError(f"{path} is not a readable trace file: a record without time, broker or step")
        if record.event_id is not None:
            try:
                record = record._replace(event_id=EventId.parse(str(record.event_id)))
            except UsageError as error:
                raise DataError(f"{path} is not a readable trace file: {error}") from None
        yield record
