"""Trace records on disk: their columns, their files, and what is kept of them."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geomq.broker.operations.trace_files import TraceFiles
from geomq.errors import ConfigError, DataError, MissingModuleError
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.trace.records import TraceRecord
from geomq.workload.schema import arrow_schema

PARIS = BrokerId("paris")


def some(count: int, *, topic: str = "t") -> list[TraceRecord]:
    return [
        TraceRecord(t_ms, PARIS, "published", "event", EventId(PARIS, 1, t_ms), topic=topic) for t_ms in range(count)
    ]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_written_can_be_read_in_the_columns_of_the_schema(tmp_path: Path) -> None:
    whole = TraceRecord(
        1.5,
        PARIS,
        "published",
        "event",
        EventId(PARIS, 2, 3),
        BrokerId("rome"),
        ClientId("c"),
        "t",
        "r",
        1.0,
        2.0,
        "f",
        1,
        9,
    )
    bare = TraceRecord(2.5, PARIS, "moved", "location")
    files = TraceFiles(tmp_path / "deep" / "er", "paris", start_ms=17)
    files.add([whole, bare])
    assert files.rows == 2
    files.flush()
    files.flush()
    assert names(tmp_path / "deep" / "er") == ["trace.paris.0000000000017.000001.parquet"]
    table = pq.read_table(tmp_path / "deep" / "er" / "trace.paris.0000000000017.000001.parquet")
    assert table.schema.equals(arrow_schema("trace"))
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (*whole[:4], "paris:2:3", *whole[5:]),
        tuple(bare),
    ]


def test_a_file_ends_when_it_is_full(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "paris", rows_max=1_000)
    files.add(some(2_500))
    files.flush()
    assert [pq.read_metadata(tmp_path / name).num_rows for name in names(tmp_path)] == [1_000, 1_000, 500]
    files = TraceFiles(tmp_path / "wide", "paris", bytes_max=10_000)
    for _ in range(4):
        files.add(some(1, topic="x" * 6_000))
    assert [pq.read_metadata(tmp_path / "wide" / name).num_rows for name in names(tmp_path / "wide")] == [2, 2]


def test_only_the_oldest_files_of_the_same_broker_are_removed(tmp_path: Path) -> None:
    for broker, start_ms in (("paris", 1), ("paris.2", 1), ("pari", 9)):
        files = TraceFiles(tmp_path, broker, start_ms=start_ms)
        files.add(some(10))
        files.flush()
    (tmp_path / "trace.paris.odd.parquet").write_bytes(b"not mine")
    size = (tmp_path / "trace.paris.0000000000001.000001.parquet").stat().st_size
    files = TraceFiles(tmp_path, "paris", start_ms=2, kept_bytes_max=2 * size + 100)
    for _ in range(3):
        files.add(some(10))
        files.flush()
    assert names(tmp_path) == [
        "trace.pari.0000000000009.000001.parquet",
        "trace.paris.0000000000002.000002.parquet",
        "trace.paris.0000000000002.000003.parquet",
        "trace.paris.2.0000000000001.000001.parquet",
        "trace.paris.odd.parquet",
    ]
    files = TraceFiles(tmp_path, "paris", start_ms=3, kept_bytes_max=1)
    files.add(some(10))
    files.flush()
    assert [name for name in names(tmp_path) if name.startswith("trace.paris.0")] == [
        "trace.paris.0000000000003.000001.parquet"
    ]


def test_what_a_killed_broker_left_unfinished_is_cleared_away(tmp_path: Path) -> None:
    mine = tmp_path / ".trace.paris.0000000000001.000004.parquet.partial"
    others = tmp_path / ".trace.rome.0000000000001.000004.parquet.partial"
    for left in (mine, others):
        left.write_bytes(b"PAR1")
    TraceFiles(tmp_path, "paris")
    assert not mine.exists()
    assert others.exists()


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path / "gone", "paris")
    files.add(some(10))
    (tmp_path / "gone").rmdir()
    with pytest.raises(DataError, match=r"cannot write .*parquet: "):
        files.flush()
    assert files.rows == 0
    (tmp_path / "gone").mkdir()
    files.add(some(10))
    files.flush()
    assert names(tmp_path / "gone") == ["trace.paris.0000000000000.000002.parquet"]


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot write traces to"):
        TraceFiles(tmp_path / "file", "paris")


def test_text_that_is_no_text_does_not_stop_the_rest(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path, "paris")
    files.add([*some(1, topic="\ud800x"), *some(1)])
    files.flush()
    assert pq.read_table(tmp_path / names(tmp_path)[0]).column("topic").to_pylist() == ["?x", "t"]


def test_without_pyarrow_there_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pa is not None
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingModuleError, match=r"this needs pyarrow, which is not installed; run: .*\[data\]"):
        TraceFiles(tmp_path, "paris")
