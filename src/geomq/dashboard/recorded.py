"""Views of recorded things: made once, kept as the bytes the page asks for."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from geomq.dashboard.feed import ClientNow, Look
from geomq.dashboard.layers import Layer, Setup, layers_of
from geomq.dashboard.shapes import Json, areas_kind, brokers_json
from geomq.dashboard.state import State
from geomq.dashboard.why import Routed, Traced
from geomq.routing.core.topology import Federation


class View(msgspec.Struct, frozen=True):
    """A recorded view; `body` is its JSON. One of a trace can be asked why events went where they went."""

    id: str
    title: str
    kind: str
    body: bytes
    trace: Traced | None = None


def setup_view(view_id: str, title: str, setup: Setup, clients: Iterable[tuple[str, ClientNow]]) -> View:
    """A simulation's set-up: brokers, areas, clients at their homes, and what each strategy would do."""
    state = State(setup.federation.ids)
    homes: dict[str, list[ClientNow]] = {name: [] for name in setup.federation.ids}
    for home, client in clients:
        homes[home].append(client)
    for home, mine in homes.items():
        state.looked(home, 0.0, Look({}, len(mine), {}, (), 0))
        state.replace(home, mine)
    return make_view(
        view_id, title, "setup", setup.federation, layers=layers_of(setup), frames=list(state.whole(0.0)), end_ms=0.0
    )


def make_view(
    view_id: str,
    title: str,
    kind: str,
    federation: Federation,
    *,
    strategy: str = "",
    layers: Sequence[Layer] = (),
    results: Json | None = None,
    frames: list[Json] | None = None,
    end_ms: float | None = None,
    trace: Path | None = None,
) -> View:
    """A view with the parts it has."""
    world = {
        "type": "world",
        "strategy": strategy,
        "strategies": [],
        "brokers": brokers_json(federation, {}),
        "areas": areas_kind(federation.areas),
    }
    start_ms = None if not frames else frames[0]["t"]
    content = {
        "id": view_id,
        "title": title,
        "kind": kind,
        "world": world,
        "layers": layers,
        "results": results,
        "frames": frames,
        "start": start_ms,
        "end": end_ms,
    }
    traced = None if trace is None else Traced(trace, Routed(federation, strategy))
    return View(view_id, title, kind, msgspec.json.encode(content), traced)
