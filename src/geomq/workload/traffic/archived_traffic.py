"""Traffic from an archive of events: what was published stands there, who subscribed where comes from snapshots.

    <archive>/_geomq_archive                 marks the directory
    <archive>/events/date=.../cell=.../      the events
    <archive>/clients/<milliseconds>.parquet who was where and subscribed to what then, as trace records

Without snapshots the archive only knows publishers. Then every one of them is supposed to subscribe, everywhere, to
what it publishes, and every broker to stand in the middle of its publishers; the traffic says so in its notes.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geomq.errors import DataError, UsageError
from geomq.extras import need
from geomq.geo import unit_vectors
from geomq.routing.federation.outline import OUTLINE_KEY, Outline, OutlinedBroker, outline_bytes
from geomq.workload.files import read_table, write_table
from geomq.workload.schema import arrow_schema
from geomq.workload.traffic.recorded_traffic import ROWS_MAX, Traffic, traffic_of
from geomq.workload.traffic.trace_reading import read_trace_outline

MARK = "_geomq_archive"
EVENTS = "events"
CLIENTS = "clients"
LOG = "_spark_metadata"
"""Where, among the events, Spark's file sink notes what it has committed; logs set aside have longer names."""
COMPACTED = "compact-"
"""How the names of compacted files begin."""
ASKED_KEY = b"geomq.asked"
"""The name of the list of brokers among the metadata of a snapshot."""

FENCED_AWAY = "an archive holds no events whose fence was away from its reader's location; a trace has all"

Row = dict[str, Any]
Held = dict[tuple[str, str], str | None]
Places = dict[str, tuple[float, float]]


class Snapshot(NamedTuple):
    """What some brokers answered at one moment."""

    t_ms: float
    asked: tuple[str, ...]
    rows: list[Row]


def is_archive(path: Path) -> bool:
    return (path / MARK).is_file()


def event_files(archive: Path, days: str = "date=*") -> list[Path]:
    """The files whose events count: those that Spark has committed, and compacted ones.

    A landing under way has files that are not whole yet; one that was killed leaves such behind, and writes the same
    events once more when it goes on.
    """
    found = sorted((archive / EVENTS).glob(f"{days}/cell=*/*.parquet"))
    logs = list((archive / EVENTS).glob(f"{LOG}*"))
    if not logs:
        return found
    committed = set[str]().union(*map(_committed, logs))
    return [path for path in found if path.name in committed or path.name.startswith(COMPACTED)]


def _committed(log: Path) -> set[str]:
    """The names of all files in the log of Spark's file sink; now and then it sums up everything before."""
    entries = {path: int(path.stem) for path in log.iterdir() if path.stem.isdecimal()}
    summed_up = max((number for path, number in entries.items() if path.suffix), default=-1)
    names: set[str] = set()
    for path, number in entries.items():
        if number > summed_up or (number == summed_up and path.suffix):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()[1:]
                names.update(str(json.loads(line)["path"]).rpartition("/")[2] for line in lines)
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                raise DataError(f"{path} is not a readable log of an archive") from None
    return names


def write_snapshot(archive: Path, outline: Outline, snapshot: Snapshot) -> None:
    """Keep what brokers answered beside the events."""
    need("pyarrow")
    import pyarrow as pa

    metadata = {OUTLINE_KEY: outline_bytes(outline), ASKED_KEY: json.dumps(snapshot.asked).encode()}
    table = pa.Table.from_pylist(snapshot.rows, schema=arrow_schema("trace").with_metadata(metadata))
    write_table(table, archive / CLIENTS / f"{int(snapshot.t_ms):015}.parquet")


def read_archived_traffic(archive: Path, *, last_s: float | None = None) -> Traffic:
    """The traffic in an archive; only its last seconds if so asked."""
    need("pyarrow")
    events = _events(archive)
    if not events:
        raise DataError(f"{archive} contains no events yet")
    if all(row["client"] is None for row in events):
        raise DataError(f'{archive} does not name publishers; the brokers need "publisher" in details of [geo]')
    files = sorted((archive / CLIENTS).glob("*.parquet"))
    outline = read_trace_outline(files) if files else None
    if outline is None:
        outline, others, notes = _supposed(events)
    else:
        others = list(_changes(_snapshots(files)))
        first = min(row["t_ms"] for row in events)
        notes = [f"locations and subscriptions come from {len(files):,} snapshots"]
        if others and others[0]["t_ms"] > first:
            # Nothing is known of the time before; the first answer is the best guess.
            begun = others[0]["t_ms"]
            others = [row | {"t_ms": first} if row["t_ms"] == begun else row for row in others]
            notes.append("the first snapshot is also used for the time before it")
    rows = sorted([*others, *events], key=lambda row: float(row["t_ms"]))
    traffic = traffic_of(outline, _with_moves(rows), last_s=last_s)
    return replace(traffic, notes=(*traffic.notes, *notes, FENCED_AWAY))


def _events(archive: Path) -> list[Row]:
    """What was published, each event once."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = ["event_id", "topic", "payload", "publisher", "location", "fence", "event_time", "broker"]
    rows: list[Row] = []
    known: set[str] = set()
    for path in event_files(archive):
        try:
            with pq.ParquetFile(path) as file:
                table = file.read(columns=columns)
            place, moment = table.column("location"), table.column("event_time").cast(pa.timestamp("us", "UTC"))
            parts = (
                *(table.column(name) for name in ("event_id", "topic", "publisher", "fence", "broker")),
                moment.cast(pa.int64()),
                pc.binary_length(table.column("payload")),
                pc.struct_field(place, "lat"),
                pc.struct_field(place, "lon"),
            )
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise DataError(f"{path} is not a readable file of an archive: {str(error).splitlines()[0]}") from None
        for event_id, topic, client, fence, broker, t_us, size, lat, lon in zip(
            *(part.to_pylist() for part in parts), strict=True
        ):
            if None in (event_id, topic, broker, t_us) or not _is_place(lat, lon):
                raise DataError(
                    f"{path} is not a readable file of an archive: an event lacks its id, topic, broker or time"
                )
            if event_id not in known:
                known.add(event_id)
                happened = {"t_ms": t_us / 1000, "broker": broker, "step": "published", "client": client}
                rows.append(happened | {"topic": topic, "fence": fence, "size": size, "lat": lat, "lon": lon})
        if len(rows) > ROWS_MAX:
            raise UsageError(f"the archive holds more than {ROWS_MAX:,} events; give an archive of fewer days")
    return rows


def _is_place(lat: float | None, lon: float | None) -> bool:
    """Whether this is a place, or none at all."""
    if lat is None or lon is None:
        return lat is lon
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0


def _snapshots(files: Sequence[Path]) -> Iterator[Snapshot]:
    import pyarrow.parquet as pq

    for path in files:
        table = read_table(path, "trace")
        try:
            asked = json.loads((pq.read_schema(path).metadata or {})[ASKED_KEY])
            t_ms = int(path.stem)
        except (KeyError, ValueError):
            raise DataError(f"{path} is not a snapshot: it does not say when which brokers were asked") from None
        yield Snapshot(t_ms, tuple(asked), [row | {"t_ms": t_ms} for row in table.to_pylist()])


def _changes(snapshots: Iterable[Snapshot]) -> Iterator[Row]:
    """What must have happened between snapshots, as if at the later one."""
    held: dict[str, Held] = {}
    places: dict[str, Places] = {}
    for t_ms, asked, rows in snapshots:
        for broker in asked:
            mine = [row for row in rows if row["broker"] == broker]
            now = {(row["client"], row["topic"]): row for row in mine if row["step"] == "subscribed"}
            before, at = held.get(broker, {}), places.setdefault(broker, {})
            for row in mine:
                if row["step"] == "moved" and at.get(row["client"]) != (row["lat"], row["lon"]):
                    at[row["client"]] = (row["lat"], row["lon"])
                    yield row
            for key, row in now.items():
                if key not in before or before[key] != row["fence"]:
                    yield row
            for client, topic in sorted(before.keys() - now.keys()):
                yield {"t_ms": t_ms, "broker": broker, "step": "unsubscribed", "client": client, "topic": topic}
            held[broker] = {key: row["fence"] for key, row in now.items()}


def _with_moves(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, and before an event from another place that its publisher moved there."""
    places: dict[tuple[str, str], tuple[float, float]] = {}
    for row in rows:
        if row.get("lat") is not None and row["client"] is not None:
            key, place = (row["broker"], row["client"]), (row["lat"], row["lon"])
            if row["step"] == "published" and places.get(key) != place:
                yield row | {"step": "moved", "topic": None, "fence": None, "size": None}
            places[key] = place
        yield row


def _supposed(events: list[Row]) -> tuple[Outline, list[Row], list[str]]:
    """Brokers and subscriptions as they might be, for want of snapshots."""
    at: dict[str, list[tuple[float, float]]] = {}
    subscribed: dict[tuple[str, str, str], Row] = {}
    for row in events:
        spots = at.setdefault(row["broker"], [])
        if row["lat"] is not None:
            spots.append((row["lat"], row["lon"]))
        if row["client"] is not None:
            question = {"t_ms": row["t_ms"], "broker": row["broker"], "step": "subscribed", "client": row["client"]}
            subscribed.setdefault((row["broker"], row["client"], row["topic"]), question | {"topic": row["topic"]})
    nowhere = sorted(broker for broker, spots in at.items() if not spots)
    if nowhere:
        raise DataError(
            f"the archive has no snapshot and no location of events of {nowhere[0]}; land with --admin, or give a trace"
        )
    outline = Outline(tuple(OutlinedBroker(broker, _middle(spots)) for broker, spots in sorted(at.items())))
    notes = [
        "no snapshot: every publisher is assumed to subscribe, everywhere, to the topics it publishes",
        "no snapshot: every broker is assumed to be at the centre of its publishers",
    ]
    return outline, list(subscribed.values()), notes


def _middle(spots: list[tuple[float, float]]) -> tuple[float, float]:
    x, y, z = (float(part.mean()) for part in unit_vectors(*np.array(spots).T))
    lat, lon = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
    return round(float(lat), 4), round(float(lon), 4)
