"""A trace as frames: what a page would have been told, had it looked on.

Four frames for each recorded second, fewer for long traces. Brokers stand where the trace's files say, else in the
middle of their clients.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from geomq.dashboard.feed import Look
from geomq.dashboard.recorded import View, make_view
from geomq.dashboard.shapes import Json
from geomq.dashboard.state import State
from geomq.errors import ConfigError, DataError
from geomq.routing.core.topology import Federation
from geomq.routing.federation.outline import Outline, OutlinedBroker, federation_of
from geomq.routing.trace.records import TraceRecord
from geomq.workload.traffic.trace_reading import everything, read_trace, read_trace_outline, trace_rows

FRAME_MS = 250.0
FRAMES_MAX = 2_400
RECORDS_MAX = 1_000_000


def replay_view(directory: Path) -> View:
    """The trace in a directory as a view with a time slider."""
    rows = trace_rows([directory])
    if rows > RECORDS_MAX:
        raise DataError(
            f"{directory} holds {rows:,} records; a replay shows at most {RECORDS_MAX:,}: remove some files"
        )
    picked = read_trace([directory], everything)
    outline = read_trace_outline([directory]) or _guessed(picked.records)
    try:
        federation = federation_of(outline)
    except ConfigError as error:
        raise DataError(f"{directory} cannot be drawn: {error}") from None
    frames = list(frames_of(picked.records, federation))
    seconds = (picked.last_ms - picked.first_ms) / 1000.0
    title = f"{directory.name}: {len(federation.ids)} brokers, {seconds:,.0f} s"
    return make_view(
        directory.name,
        title,
        "replay",
        federation,
        strategy=outline.strategy,
        frames=frames,
        end_ms=frames[-1]["t"],
        trace=directory,
    )


def frames_of(records: Sequence[TraceRecord], federation: Federation) -> Iterator[Json]:
    """Ticks at equal distances from the first record to the last."""
    first_ms, last_ms = records[0].t_ms, records[-1].t_ms
    step_ms = max(FRAME_MS, (last_ms - first_ms) / (FRAMES_MAX - 1))
    state = State(federation.ids)
    totals: dict[str, Counter[str]] = {name: Counter() for name in federation.ids}
    links = _links(records, federation)
    for broker in federation.ids:
        state.looked(broker, first_ms, Look({}, 0, links[broker], (), 0))
    position, t_ms = 0, first_ms
    while position < len(records):
        t_ms += step_ms
        due: dict[str, list[TraceRecord]] = {name: [] for name in federation.ids}
        while position < len(records) and records[position].t_ms < t_ms:
            record = records[position]
            if record.broker in due:
                due[record.broker].append(record)
                totals[record.broker][record.step] += 1
            position += 1
        at_home = state.clients_by_home()
        for name, mine in due.items():
            counts = {"events_received": totals[name]["published"], "events_delivered": totals[name]["delivered"]}
            state.looked(name, t_ms, Look(counts, at_home[name], links[name], tuple(mine), 0))
        yield state.tick(t_ms)


def _links(records: Sequence[TraceRecord], federation: Federation) -> dict[str, dict[str, float | None]]:
    """Brokers that ever sent each other something."""
    found: dict[str, dict[str, float | None]] = {name: {} for name in federation.ids}
    for record in records:
        if record.step == "sent" and record.peer in federation.position and record.broker in found:
            found[record.broker][record.peer] = None
    return found


def _guessed(records: Sequence[TraceRecord]) -> Outline:
    """Each broker in the middle of the places of its clients."""
    places: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        mine = places.setdefault(record.broker, [])
        if record.lat is not None and record.lon is not None and record.peer is None:
            mine.append((record.lat, record.lon))
    brokers = [
        OutlinedBroker(name, (median(lat for lat, _ in mine), median(lon for _, lon in mine)) if mine else (0.0, 0.0))
        for name, mine in sorted(places.items())
    ]
    return Outline(tuple(brokers))
