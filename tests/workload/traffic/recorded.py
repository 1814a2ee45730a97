"""Workloads written down as the traces that brokers would have written."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geomq.geo import Circle, Location, degrees_to_m, fence_text
from geomq.routing.federation.outline import OUTLINE_KEY, Outline, OutlinedBroker, outline_bytes
from geomq.workload.generation.scenarios import ScenarioSpec, scenario_world
from geomq.workload.model import Kind, Spec, Workload
from geomq.workload.schema import arrow_schema
from geomq.workload.traffic.script import Action, actions_of
from geomq.workload.world import World

STEPS = {Kind.LOCATION: "moved", Kind.SUBSCRIPTION: "subscribed", Kind.EVENT: "published"}
KINDS = {Kind.LOCATION: "location", Kind.SUBSCRIPTION: "subscription", Kind.EVENT: "event"}


def scenario_outline(world: World, strategy: str) -> Outline:
    """The three cities with their circles."""
    circles = [
        fence_text(Circle(Location(place.lat, place.lon), degrees_to_m(radius)))
        for place, radius in zip(world.places, world.circles_deg, strict=True)
    ]
    brokers = [
        OutlinedBroker(place.name, (place.lat, place.lon), area)
        for place, area in zip(world.places, circles, strict=True)
    ]
    return Outline(tuple(brokers), strategy)


def write_trace(path: Path, outline: Outline, rows: list[dict[str, Any]]) -> None:
    """A trace file with the federation in its metadata."""
    schema = arrow_schema("trace").with_metadata({OUTLINE_KEY: outline_bytes(outline)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def scenario_rows(spec: Spec, world: World, *, seed: int = 1, begin_ms: float = 1.7e12) -> list[dict[str, Any]]:
    """What the clients of a scenario do, as brokers record it."""
    block = spec.block(world, seed, 0)
    workload = Workload(spec.topic_names(), block.clients, block.actions.in_order())
    return [_row(action, world, begin_ms) for action in actions_of(workload)]


def _row(action: Action, world: World, begin_ms: float) -> dict[str, Any]:
    return {
        "t_ms": begin_ms + action.t_ms,
        "broker": world.places[action.home].name,
        "step": STEPS[action.kind],
        "kind": KINDS[action.kind],
        "client": f"client-{action.client}",
        "topic": action.topic,
        "lat": None if action.kind is Kind.SUBSCRIPTION else action.location.lat,
        "lon": None if action.kind is Kind.SUBSCRIPTION else action.location.lon,
        "fence": None if action.fence is None else fence_text(action.fence),
        "size": action.payload_bytes if action.kind is Kind.EVENT else None,
    }


def scenario_trace(
    folder: Path, name: str, *, strategy: str = "flood_events", clients: int = 360, seconds: int = 300
) -> Path:
    """A directory with the trace of one of the published scenarios."""
    world, spec = scenario_world(), ScenarioSpec(name, clients=clients, seconds=seconds)
    rows = scenario_rows(spec, world)
    write_trace(folder / "1.parquet", scenario_outline(world, strategy), rows)
    return folder
