"""Reading traces from files: only what is asked for, and one clear line for what cannot be read."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geomq.broker.operations.trace_files import TraceFiles
from geomq.errors import DataError
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.trace.records import TraceRecord
from geomq.workload.schema import arrow_schema
from geomq.workload.traffic.trace_reading import Picked, of_event, of_events, of_topic, read_trace

A, B = BrokerId("a"), BrokerId("b")


def write(directory: Path, broker: BrokerId, *records: TraceRecord) -> None:
    files = TraceFiles(directory, broker)
    files.add(records)
    files.flush()


def published(t_ms: float, broker: BrokerId, sequence: int, client: str, topic: str) -> TraceRecord:
    return TraceRecord(t_ms, broker, "published", "event", EventId(broker, 1, sequence), None, ClientId(client), topic)


ONE, TWO, THREE = published(10, A, 1, "c", "t/1"), published(30, A, 2, "c", "t/2"), published(20, B, 1, "d", "u")
MOVED = TraceRecord(5, A, "moved", "location", client=ClientId("c"), lat=1.0, lon=2.0)
REFUSED = TraceRecord(25, B, "dropped", "event", client=ClientId("d"), topic="t/3", reason="no right")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write(tmp_path, A, MOVED, ONE, TWO)
    write(tmp_path, B, THREE, REFUSED)
    return tmp_path


def test_an_event_and_what_clients_did_are_picked_from_all_files_in_the_order_of_time(trace: Path) -> None:
    picked = read_trace([trace], of_event(ONE.event_id or EventId(A, 0, 0), ["c", "nobody"]))
    assert picked == Picked([MOVED, ONE], frozenset((A, B)), 5.0, 30.0, frozenset(("moved", "published", "dropped")))
    assert read_trace([trace], of_event(EventId(B, 1, 1), [])).records == [THREE]
    assert read_trace(sorted(trace.glob("*.b.*")), of_event(EventId(B, 1, 1), [])).brokers == {B}
    both = [one.event_id for one in (ONE, THREE) if one.event_id is not None]
    assert read_trace([trace], of_events(both)).records == [ONE, THREE]


def test_what_was_published_is_found_by_topic_publisher_and_time(trace: Path) -> None:
    def found(topic: str | None, client: str | None, span: tuple[float | None, float | None]) -> list[TraceRecord]:
        return read_trace([trace], of_topic(topic, client, span, [])).records

    assert found(None, None, (None, None)) == [ONE, THREE, REFUSED, TWO]
    assert found("t/+", None, (None, None)) == [ONE, REFUSED, TWO]
    assert found("none", None, (None, None)) == []
    assert found("t/#", "c", (None, None)) == [ONE, TWO]
    assert found(None, None, (20.0, 25.0)) == [THREE, REFUSED]
    assert read_trace([trace], of_topic("u", None, (None, None), ["c"])).records == [MOVED, THREE]


def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, trace: Path) -> None:
    everything = of_topic(None, None, (None, None), [])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="empty contains no trace files"):
        read_trace([empty], everything)
    with pytest.raises(DataError, match="gone does not exist"):
        read_trace([trace, tmp_path / "gone"], everything)
    damaged = empty / "damaged.parquet"
    damaged.write_bytes(b"PAR1" + os.urandom(100) + b"PAR1")
    with pytest.raises(DataError, match=r"damaged\.parquet is not a readable trace file"):
        read_trace([empty], everything)
    pq.write_table(pa.table({"x": [1]}), damaged)
    with pytest.raises(DataError, match="has no column 't_ms'; it is not a trace file"):
        read_trace([damaged], everything)


@pytest.mark.parametrize("wrong", [{"event_id": "nonsense"}, {"broker": None}])
def test_a_record_that_makes_no_sense_is_refused_in_one_line(tmp_path: Path, wrong: dict[str, object]) -> None:
    row = dict.fromkeys(arrow_schema("trace").names) | {"t_ms": 1.0, "broker": "a", "step": "published", "topic": "t"}
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.Table.from_pylist([row | wrong], arrow_schema("trace")), path)
    with pytest.raises(DataError, match=r"odd\.parquet is not a readable trace file"):
        read_trace([path], of_topic("t", None, (None, None), []))


def test_a_trace_without_records_is_said_to_be_empty(tmp_path: Path) -> None:
    pq.write_table(arrow_schema("trace").empty_table(), tmp_path / "none.parquet")
    with pytest.raises(DataError, match="the trace is empty"):
        read_trace([tmp_path], of_events([]))
