"""Recorded traffic as a workload: what clients did according to a trace, in the form every engine evaluates.

Owns the way from trace rows to actions and what is lost on it. The evaluation knows circles around places and exact
topics: a polygon becomes the circle around it, an event's fence is drawn around its publisher, a filter with wildcards
becomes the published topics that it matches, and an unsubscription becomes a subscription that nothing can match.
What had to be changed or left out is counted and said.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomq.errors import DataError, GeomqError, UsageError
from geomq.geo import Areas, Circle, Fence, Location, Polygon, SoleArea, distance_m, parse_fence
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.federation.outline import Outline, federation_of
from geomq.vocabulary import FROM_PREFIX
from geomq.workload.cities import Place
from geomq.workload.model import DEGREE, NO_FENCE, SECONDS_MAX, Actions, Kind, Spec
from geomq.workload.traffic.script import recorded
from geomq.workload.traffic.trace_reading import read_trace_outline, trace_tables
from geomq.workload.world import World

ROWS_MAX = 20_000_000
TOPICS_MAX = 20_000
STEPS = ("connected", "disconnected", "moved", "subscribed", "unsubscribed", "published")
_COLUMNS = ("t_ms", "broker", "step", "client", "topic", "reason", "lat", "lon", "fence", "size")
_NOWHERE = (-90 * DEGREE, 0, 0)
"""A circle of no size at the south pole: the subscription of somebody who has none."""

Row = Mapping[str, Any]
Rounded = tuple[int, int, int]


@dataclass(frozen=True)
class RecordedWorld(World):
    """The brokers of a trace, with the areas they had."""

    outline: Outline | None = None

    @cached_property
    def areas(self) -> Areas:
        assert self.outline is not None
        return SoleArea() if len(self.outline.brokers) == 1 else federation_of(self.outline).areas


@dataclass(frozen=True)
class Traffic:
    """What clients did. `homes` is each client's broker; clients are numbered broker by broker."""

    outline: Outline
    topics: list[str]
    homes: NDArray[np.int32]
    actions: Actions
    notes: tuple[str, ...] = ()

    @property
    def world(self) -> World:
        places = tuple(
            Place(broker.name, *(broker.location or (0.0, 0.0)), int(np.sum(self.homes == number)) or 1)
            for number, broker in enumerate(self.outline.brokers)
        )
        return RecordedWorld(places, 1, outline=self.outline)

    @property
    def spec(self) -> Spec:
        return recorded(self.topics, self.homes, self.actions)

    @property
    def payload_mean(self) -> float:
        sizes = self.actions.payload_bytes[self.actions.kind == Kind.EVENT]
        return float(sizes.mean()) if len(sizes) else 0.0

    def part(self, clients: NDArray[np.bool_]) -> "Traffic":
        """The traffic of some clients only."""
        return self._renumbered(np.flatnonzero(clients), self.homes)

    def moved_to(self, outline: Outline, homes: NDArray[np.int32]) -> "Traffic":
        """The same clients at other brokers."""
        found = self._renumbered(np.argsort(homes, kind="stable"), homes)
        return replace(found, outline=outline)

    def _renumbered(self, order: NDArray[np.intp], homes: NDArray[np.int32]) -> "Traffic":
        number = np.full(len(homes), -1, np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        kept = self.actions.take(number[self.actions.client] >= 0)
        return replace(self, homes=homes[order], actions=replace(kept, client=number[kept.client]))

    def places(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
        """Where clients acted: latitudes, longitudes and clients, one for each location and event."""
        actions = self.actions
        here = (actions.kind != Kind.SUBSCRIPTION) & (actions.lat_e7 > -90 * DEGREE)
        return actions.lat_e7[here] / DEGREE, actions.lon_e7[here] / DEGREE, actions.client[here]


def read_traffic(given: Sequence[Path], *, last_s: float | None = None) -> Traffic:
    """The traffic in trace files or directories; only its last seconds if so asked."""
    outline = read_trace_outline(given)
    if outline is None:
        raise DataError("the trace does not say where its brokers are; it was not written by a broker")
    return traffic_of(outline, trace_actions(given), last_s=last_s)


def trace_actions(given: Sequence[Path]) -> list[dict[str, Any]]:
    """What clients did, in the order of time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows: list[dict[str, Any]] = []
    for _, table in trace_tables(given):
        rows += table.filter(pc.is_in(table.column("step"), pa.array(STEPS))).select(_COLUMNS).to_pylist()
        if len(rows) > ROWS_MAX:
            raise UsageError(f"the trace holds more than {ROWS_MAX:,} actions; give fewer files")
    rows.sort(key=lambda row: float(row["t_ms"]))
    return rows


def traffic_of(outline: Outline, rows: Iterable[Row], *, last_s: float | None = None) -> Traffic:
    """Rows in the order of time as traffic of these brokers."""
    listed = list(rows)
    if not any(row["step"] == "published" for row in listed):
        raise DataError("nothing was published in this trace: there is nothing to judge strategies by")
    last_s = min(last_s or SECONDS_MAX, SECONDS_MAX)
    begin = float(listed[-1]["t_ms"]) - last_s * 1000
    topics = {row["topic"]: None for row in listed if row["step"] == "published" and row["topic"] is not None}
    if len(topics) > TOPICS_MAX:
        raise UsageError(f"the trace has {len(topics):,} topics; at most {TOPICS_MAX:,} can be evaluated")
    maker = _Maker(outline, list(topics))
    for row in listed:
        if float(row["t_ms"]) >= begin or row["step"] != "published":
            maker.take(row, max(0, int(float(row["t_ms"]) - max(begin, float(listed[0]["t_ms"])))))
    return maker.traffic()


class _Maker:
    """Takes rows one by one."""

    def __init__(self, outline: Outline, published: list[str]) -> None:
        self._outline = outline
        self._published = published
        self._brokers = {broker.name: number for number, broker in enumerate(outline.brokers)}
        self._clients: dict[tuple[int, str], int] = {}
        self._homes: list[int] = []
        self._wanted: dict[int, dict[str, None]] = {}
        self._place: dict[int, tuple[int, int]] = {}
        self._fences: dict[str, tuple[Rounded, bool]] = {}
        self._matching: dict[str, list[int]] = {}
        self._made: list[tuple[int, int, int, int, int, int, int, int]] = []
        self.topics = {topic: number for number, topic in enumerate(published)}
        self.changed: Counter[str] = Counter()

    def take(self, row: Row, t_ms: int) -> None:
        broker, name, step = self._brokers.get(row["broker"]), row.get("client"), row["step"]
        if broker is None or name is None:
            self.changed["records of unknown brokers or clients skipped"] += 1
            return
        if row.get("topic") is None and step in ("subscribed", "unsubscribed", "published"):
            self.changed["records without a topic skipped"] += 1
            return
        client = self._clients.setdefault((broker, name), len(self._clients))
        if client == len(self._homes):
            self._homes.append(broker)
        lat, lon = row.get("lat"), row.get("lon")
        if step in ("connected", "moved") and lat is not None and lon is not None:
            self._place[client] = (round(lat * DEGREE), round(lon * DEGREE))
            self._made.append((t_ms, client, Kind.LOCATION, -1, *self._place[client], NO_FENCE, 0))
        elif step == "subscribed":
            self._wanted.setdefault(client, {})[row["topic"]] = None
            self._subscribe(t_ms, client, row["topic"], row.get("fence"))
        elif step == "unsubscribed":
            self._wanted.get(client, {}).pop(row["topic"], None)
            self._forget(t_ms, client, [row["topic"]])
        elif step == "disconnected" and row.get("reason") == "session ended":
            self._forget(t_ms, client, list(self._wanted.pop(client, {})))
        elif step == "published":
            self._publish(t_ms, client, row, (lat, lon))

    def _subscribe(self, t_ms: int, client: int, topic_filter: str, text: str | None) -> None:
        lat, lon, radius = *self._home_of(client), NO_FENCE
        if text is not None:
            (lat, lon, radius), exact = self._circle(text)
            self.changed["fences that are not circles, replaced by the circles around them"] += not exact
        for topic in self._topics_of(topic_filter):
            self._made.append((t_ms, client, Kind.SUBSCRIPTION, topic, lat, lon, radius, 0))

    def _forget(self, t_ms: int, client: int, filters: list[str]) -> None:
        for topic_filter in filters:
            for topic in self._topics_of(topic_filter):
                self._made.append((t_ms, client, Kind.SUBSCRIPTION, topic, *_NOWHERE, 0))

    def _publish(self, t_ms: int, client: int, row: Row, place: tuple[float | None, float | None]) -> None:
        lat, lon = place
        if lat is not None and lon is not None:
            here = (round(lat * DEGREE), round(lon * DEGREE))
        else:
            here = self._home_of(client)
        radius = NO_FENCE
        if row.get("fence") is not None:
            centre, exact = self._circle(row["fence"])
            self.changed["fences that are not circles, replaced by the circles around them"] += not exact
            radius = centre[2]
            if centre[:2] != here:
                apart = distance_m(_location(here), _location(centre[:2]))
                if apart > 1.0:
                    radius = min(radius + round(apart * 100), 2**31 - 1)
                    self.changed["event fences not around their publisher, widened to hold both"] += 1
        self._made.append((t_ms, client, Kind.EVENT, self.topics[row["topic"]], *here, radius, row.get("size") or 0))

    def _home_of(self, client: int) -> tuple[int, int]:
        """Where a client is, or for want of that where its broker is."""
        if client not in self._place:
            lat, lon = self._outline.brokers[self._homes[client]].location or (0.0, 0.0)
            self._place[client] = (round(lat * DEGREE), round(lon * DEGREE))
        return self._place[client]

    def _topics_of(self, topic_filter: str) -> list[int]:
        found = self._matching.get(topic_filter)
        if found is None:
            plain = topic_filter.split("/", 2)[-1] if topic_filter.startswith("$share/") else topic_filter
            if plain.startswith(FROM_PREFIX):
                plain = plain.split("/", 3)[-1]
            found = self._matching[topic_filter] = self._matched_by(plain)
        return found

    def _matched_by(self, plain: str) -> list[int]:
        """The published topics that a filter matches; one without wildcards is a topic, published on or not."""
        if "+" in plain or "#" in plain:
            found = [number for number, topic in enumerate(self._published) if topic_matches(plain, topic)]
            self.changed["filters with wildcards, replaced by the topics they match"] += bool(found)
            self.changed["filters with wildcards skipped: no event they match was published"] += not found
            return found
        if plain not in self.topics and len(self.topics) == TOPICS_MAX:
            self.changed[f"filters skipped: at most {TOPICS_MAX:,} topics can be evaluated"] += 1
            return []
        return [self.topics.setdefault(plain, len(self.topics))]

    def _circle(self, text: str) -> tuple[Rounded, bool]:
        found = self._fences.get(text)
        if found is None:
            try:
                found = self._fences[text] = _circle_around(parse_fence(text))
            except GeomqError as error:
                raise DataError(f"the trace holds an invalid fence: {error}") from None
        return found

    def traffic(self) -> Traffic:
        homes = np.array(self._homes, np.int32)
        columns = np.array(self._made, np.int64).reshape(-1, 8).T
        t_ms, client, kind, topic, lat, lon, radius, size = (column.astype(np.int32) for column in columns)
        actions = Actions(t_ms, client, kind.astype(np.uint8), topic, lat, lon, radius, size)
        notes = tuple(f"{count:,} {what}" for what, count in self.changed.items() if count)
        unordered = Traffic(self._outline, list(self.topics), homes, actions, notes)
        return unordered.moved_to(self._outline, homes)


def _location(place: tuple[int, int]) -> Location:
    return Location(place[0] / DEGREE, place[1] / DEGREE)


def _circle_around(fence: Fence) -> tuple[Rounded, bool]:
    """A circle that holds the fence, and whether it is the fence."""
    if isinstance(fence, Circle):
        centre, radius_m, exact = fence.center, fence.radius_m, True
    else:
        parts = [fence] if isinstance(fence, Polygon) else list(fence.polygons)
        corners = [Location(*corner) for part in parts for corner in part.rings[0]]
        lats, lons = [corner.lat for corner in corners], [corner.lon for corner in corners]
        centre = Location((min(lats) + max(lats)) / 2, (min(lons) + max(lons)) / 2)
        radius_m, exact = max(distance_m(centre, corner) for corner in corners), False
    cm = min(round(radius_m * 100), 2**31 - 1)
    return (round(centre.lat * DEGREE), round(centre.lon * DEGREE), cm), exact
