"""Views of what geomq wrote into directories."""

import json
from pathlib import Path
from typing import Any

import pytest

from geomq.cli.evaluate import run_requests
from geomq.dashboard.recorded import View
from geomq.dashboard.recorded_files import CLIENTS_SHOWN_MAX, read_views, workload_view
from geomq.errors import DataError
from geomq.workload.evaluation.results import write_results
from geomq.workload.generation.disgb import preset
from geomq.workload.generation.generate import write_workload
from geomq.workload.generation.presets import Request, build
from geomq.workload.model import generate
from geomq.workload.world import World


def content(view: View) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(view.body)
    return found


def test_a_workload_is_shown_as_the_set_up_it_starts_from() -> None:
    world = World.published()
    view = workload_view("one", "One", world, generate(world, preset("steady", clients=200, seconds=60), 1))
    shown = content(view)
    assert (shown["kind"], shown["world"]["areas"], len(shown["world"]["brokers"])) == ("setup", "grid", 25)
    assert {layer["name"] for layer in shown["layers"]} >= {"dht", "mesh"}
    (frame,) = shown["frames"]
    assert 150 <= len(frame["clients"]["put"]) <= 200
    assert frame["subscriptions"]["put"][0][2]["type"] == "Circle"
    assert all(broker["up"] for broker in frame["brokers"].values())
    assert sum(broker["clients"] for broker in frame["brokers"].values()) == len(frame["clients"]["put"])


def test_a_large_set_up_shows_some_of_its_clients() -> None:
    world = World.published()
    workload = generate(world, preset("steady", clients=12_000, seconds=1), 1)
    shown = content(workload_view("large", "Large", world, workload))
    placed = sum(len(frame["clients"]["put"]) for frame in shown["frames"])
    assert CLIENTS_SHOWN_MAX / 2 < placed <= CLIENTS_SHOWN_MAX


def test_a_directory_with_nothing_to_show_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no manifest"):
        read_views(tmp_path)
    (tmp_path / "manifest.json").write_text('{"version": 1, "kind": "other"}')
    with pytest.raises(DataError, match="contains no workload or results dataset"):
        read_views(tmp_path)


def test_a_workload_on_disk_is_a_set_up_too(tmp_path: Path) -> None:
    request = Request(preset="steady", clients=300, seconds=20, topics=50)
    world, spec = build(request)
    write_workload(tmp_path / "mine", world, spec, request, overwrite=False)
    (view,) = read_views(tmp_path / "mine")
    shown = content(view)
    assert (view.id, shown["kind"]) == ("mine", "setup")
    assert len(shown["frames"][0]["clients"]["put"]) > 250


def test_results_are_shown_run_by_run_with_the_numbers_that_evaluate_prints(tmp_path: Path) -> None:
    requests = [Request(preset="steady", clients=clients, seconds=10, topics=20) for clients in (60, 120)]
    outcomes = run_requests(requests, data=None, engine="local", master=None)
    write_results(tmp_path / "results", outcomes, {"wall_s": 1.0}, overwrite=False)
    views = read_views(tmp_path / "results")
    assert [view.id for view in views] == ["results-0", "results-1"]
    for view, outcome in zip(views, outcomes, strict=True):
        shown, printed = content(view), json.loads(json.dumps(outcome.as_json()))
        assert shown["kind"] == "results"
        assert shown["results"]["run"] == printed["run"]
        assert set(shown["results"]["strategies"]) == set(printed["strategies"])
        for name, strategy in printed["strategies"].items():
            told = shown["results"]["strategies"][name]
            for measure in ("latency_ms", "subscription_delay_ms", "deliveries", "redundant"):
                assert told[measure] == strategy[measure]
            assert told["messages"]["total"] == strategy["messages"]["total"]
            assert sum(count for _, count in told["latency_histogram"]) == strategy["deliveries"]
        layers = {layer["name"]: layer for layer in shown["layers"]}
        assert all(len(line) == 4 for line in layers["flood_events"]["lines"])
