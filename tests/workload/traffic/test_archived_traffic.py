"""Archives as traffic: snapshots tell who subscribed, and what is supposed without them is said."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from geomq.cli import main
from geomq.errors import DataError
from geomq.routing.federation.outline import Outline, OutlinedBroker
from geomq.workload.model import NO_FENCE, Kind
from geomq.workload.traffic.archived_traffic import MARK, Snapshot, event_files, read_archived_traffic, write_snapshot

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
NOON_MS = NOON.timestamp() * 1000
TWO = Outline((OutlinedBroker("a", (50.0, 8.0)), OutlinedBroker("b", (48.0, 2.0))), "flood_events")
COLUMNS = pa.schema(
    [
        ("event_id", pa.string()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("publisher", pa.string()),
        ("location", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
        ("fence", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("broker", pa.string()),
    ]
)


def event(number: int, broker: str = "a", publisher: str | None = "p", **more: Any) -> dict[str, Any]:
    place = {"lat": 50.0, "lon": 8.0} if broker == "a" else {"lat": 48.0, "lon": 2.0}
    said = {"event_id": f"{broker}:1:{number}", "topic": f"s/{broker}", "payload": b"x" * 10, "publisher": publisher}
    when = {"location": place, "event_time": NOON + timedelta(seconds=number), "broker": broker}
    return said | when | more


def archive(folder: Path, events: list[dict[str, Any]]) -> Path:
    (folder / "events/date=2026-05-04/cell=50_8").mkdir(parents=True)
    (folder / MARK).write_text("{}")
    table = pa.Table.from_pylist(events, schema=COLUMNS)
    pq.write_table(table, folder / "events/date=2026-05-04/cell=50_8/part.parquet")
    return folder


def subscribed(t_ms: float, broker: str, client: str, topic: str, fence: str | None = None) -> dict[str, Any]:
    step = {"step": "subscribed", "kind": "subscription", "topic": topic, "fence": fence}
    return {"t_ms": t_ms, "broker": broker, "client": client} | step


def test_snapshots_tell_who_subscribed_and_only_changes_count(tmp_path: Path) -> None:
    folder = archive(tmp_path, [event(n) for n in range(10)] + [event(3)])
    near = "geo:50,8;u=1000"
    for second, rows in [
        (2, [subscribed(0, "b", "r", "s/#"), subscribed(0, "a", "q", "s/a")]),
        (4, [subscribed(0, "b", "r", "s/#"), subscribed(0, "a", "q", "s/a", near)]),
        (6, [subscribed(0, "a", "q", "s/a", near)]),
    ]:
        write_snapshot(folder, TWO, Snapshot(NOON_MS + second * 1000, ("a", "b"), rows))
    traffic = read_archived_traffic(folder)
    actions = traffic.actions
    found = actions.take(actions.kind == Kind.SUBSCRIPTION)
    # The first snapshot counts from the beginning; then a fence is set, then a reader is gone.
    assert list(zip(found.t_ms.tolist(), found.radius_cm.tolist(), strict=True)) == [
        (0, NO_FENCE),
        (0, NO_FENCE),
        (4000, 100_000),
        (6000, 0),
    ]
    assert int(np.sum(actions.kind == Kind.EVENT)) == 10
    assert traffic.outline == TWO
    assert traffic.payload_mean == 10.0
    assert any("3 snapshots" in note for note in traffic.notes)


def test_without_snapshots_it_is_said_what_is_supposed(tmp_path: Path) -> None:
    far = event(20, location={"lat": 50.0, "lon": 10.0})
    traffic = read_archived_traffic(archive(tmp_path, [event(1), event(2, "b"), far]))
    assert [broker.name for broker in traffic.outline.brokers] == ["a", "b"]
    assert traffic.outline.brokers[0].location == pytest.approx((50.0, 9.0), abs=0.02)
    assert int(np.sum(traffic.actions.kind == Kind.SUBSCRIPTION)) == 2
    assert int(np.sum(traffic.actions.kind == Kind.LOCATION)) == 3
    assert sum("no snapshot" in note for note in traffic.notes) == 2


def test_what_a_killed_landing_left_behind_does_not_count(tmp_path: Path) -> None:
    folder = archive(tmp_path, [event(1), event(2)])
    day = folder / "events/date=2026-05-04/cell=50_8"
    for name in ("later", "compact-old", "again"):
        pq.write_table(pa.Table.from_pylist([event(3), event(len(name))], schema=COLUMNS), day / f"{name}.parquet")
    (day / "half.parquet").write_bytes((day / "later.parquet").read_bytes()[:100])
    log = folder / "events/_spark_metadata"
    log.mkdir()

    def entry(*names: str) -> str:
        return "\n".join(
            ["v1", *(f'{{"path":"file:///x/date=2026-05-04/cell=50_8/{name}.parquet"}}' for name in names)]
        )

    for name, text in (("0", "nonsense, summed up"), ("1.compact", entry("part", "gone")), ("2", entry("later"))):
        (log / name).write_text(text)
    (log / ".3.tmp").write_text("{")
    assert [path.stem for path in event_files(folder)] == ["compact-old", "later", "part"]
    assert int(np.sum(read_archived_traffic(folder).actions.kind == Kind.EVENT)) == 5
    (log / "3").write_text("v1\n[]")
    with pytest.raises(DataError, match=r"_spark_metadata/3 is not a readable log of an archive"):
        event_files(folder)


@pytest.mark.parametrize(
    "wrong", [{"event_id": None}, {"topic": None}, {"event_time": None}, {"broker": None}, {"location": {"lat": 91.0}}]
)
def test_an_event_that_says_nothing_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"is not a readable file of an archive: an event lacks its id"):
        read_archived_traffic(archive(tmp_path, [event(1), event(2, **wrong)]))


def test_an_archive_that_cannot_be_judged_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no events yet"):
        read_archived_traffic(archive(tmp_path / "empty", []))
    with pytest.raises(DataError, match="does not name publishers"):
        read_archived_traffic(archive(tmp_path / "anonymous", [event(1, publisher=None)]))
    with pytest.raises(DataError, match="no location of events of b; land with --admin"):
        read_archived_traffic(archive(tmp_path / "nowhere", [event(1), event(2, "b", location=None)]))
    broken = archive(tmp_path / "broken", [event(1)])
    (broken / "clients").mkdir()
    (broken / "clients" / "1.parquet").write_bytes(b"none")
    for arguments in ([str(broken)], [str(broken), str(broken)]):
        done = CliRunner().invoke(main, ["advise", *arguments])
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
