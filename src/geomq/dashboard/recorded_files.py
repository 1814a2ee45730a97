"""Views from directories that geomq wrote: workloads as set-ups, results beside their map, traces as replays.

Whatever is missing or damaged comes out as one DataError that names it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from geomq.dashboard.feed import ClientNow, Subscribed
from geomq.dashboard.layers import Layer, Line, Mark, Setup
from geomq.dashboard.recorded import View, make_view, setup_view
from geomq.dashboard.replay import replay_view
from geomq.dashboard.shapes import Json
from geomq.errors import DataError
from geomq.geo import Circle, Location, NearestAreas
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.workload.dataset import MANIFEST, DatasetSpec, read_manifest
from geomq.workload.evaluation.report import KINDS, run_title
from geomq.workload.evaluation.results import CLOUD_NAME, read_results, statistics_of
from geomq.workload.model import DEGREE, NO_FENCE, Actions, Block, Clients, Kind, Workload
from geomq.workload.world import World

CLIENTS_SHOWN_MAX = 5_000
LINKS_SHOWN_MAX = 300
TOPICS_MAX = 1_000

Rows = list[dict[str, Any]]


def read_views(directory: Path) -> list[View]:
    """What a directory holds, as views: one for a workload or a trace, one for each run of results."""
    if not (directory / MANIFEST).exists() and any(directory.glob("trace.*.parquet")):
        return [replay_view(directory)]
    readers = {"workload": _workload, "results": _results}
    return readers[read_manifest(directory, *readers)["kind"]](directory)


def workload_view(view_id: str, title: str, world: World, workload: Workload) -> View:
    """A workload in memory as the set-up it starts from."""
    blocks = [Block(workload.clients, workload.actions)]
    clients = _clients(blocks, len(workload.clients), world.federation, workload.topic_names)
    return setup_view(view_id, title, _setup(world, workload.topic_names), clients)


def _workload(directory: Path) -> list[View]:
    spec = DatasetSpec(directory)
    world, names = spec.world, spec.topic_names()
    count = int(spec.homes(world).sum())
    blocks = (spec.block(world, 0, number) for number in range(spec.block_count(world)))
    title = f"{directory.name}: {len(world)} brokers, {count:,} clients"
    return [setup_view(directory.name, title, _setup(world, names), _clients(blocks, count, world.federation, names))]


def _setup(world: World, topics: list[str]) -> Setup:
    weights = {place.name: float(place.population) for place in world.places}
    return Setup(world.federation, topics[:TOPICS_MAX], weights)


def _clients(
    blocks: Iterable[Block], count: int, federation: Federation, topics: list[str]
) -> Iterator[tuple[str, ClientNow]]:
    """Clients at their first place with their first subscription; evenly chosen if there are too many."""
    stride = -(-count // CLIENTS_SHOWN_MAX)
    for block in blocks:
        first = _first_subscriptions(block, topics)
        clients = block.clients
        for row in range(0, len(clients), stride):
            place = _place(clients, row)
            number = int(clients.client[row])
            yield federation.ids[int(clients.home[row])], ClientNow(f"c{number}", place, first.get(number, ()))


def _first_subscriptions(block: Block, topics: list[str]) -> dict[int, tuple[Subscribed, ...]]:
    found: dict[int, tuple[Subscribed, ...]] = {}
    actions = block.actions
    for row in (actions.kind == Kind.SUBSCRIPTION).nonzero()[0].tolist():
        client = int(actions.client[row])
        if client not in found:
            radius_cm = int(actions.radius_cm[row])
            fence = None if radius_cm == NO_FENCE else Circle(_place(actions, row), radius_cm / 100.0)
            found[client] = (Subscribed(topics[int(actions.topic[row])], fence),)
    return found


def _place(columns: Clients | Actions, row: int) -> Location:
    return Location(float(columns.lat_e7[row]) / DEGREE, float(columns.lon_e7[row]) / DEGREE)


def _results(directory: Path) -> list[View]:
    tables = read_results(directory)
    if not tables["runs"]:
        raise DataError(f"{directory} holds no runs")
    views = []
    for run in tables["runs"]:
        number = run["run"]
        mine = {name: [row for row in rows if row["run"] == number] for name, rows in tables.items()}
        view_id = directory.name if len(tables["runs"]) == 1 else f"{directory.name}-{number}"
        brokers = [BrokerSite(BrokerId(row["name"]), Location(row["lat"], row["lon"])) for row in mine["places"]]
        if not brokers:
            raise DataError(f"{directory} lists no brokers for run {number}")
        federation = Federation(brokers, NearestAreas([broker.location for broker in brokers]))
        layers = [_links_layer(row["strategy"], mine["links"], federation) for row in mine["results"]]
        results = _results_json(run, mine)
        views.append(make_view(view_id, run_title(run), "results", federation, layers=layers, results=results))
    return views


def _links_layer(strategy: str, rows: Rows, federation: Federation) -> Layer:
    """The busiest links of a strategy and the load of every broker."""
    mine = [row for row in rows if row["strategy"] == strategy]
    load = _load(mine)
    busiest = sorted(mine, key=lambda row: -int(row["messages"]))
    known = [row for row in busiest if row["sender"] in federation.position and row["receiver"] in federation.position]
    lines: list[Line] = [
        (row["sender"], row["receiver"], "messages", row["messages"]) for row in known[:LINKS_SHOWN_MAX]
    ]
    heaviest = max((each["sent"] + each["received"] for each in load.values()), default=0)
    marks: dict[str, Mark] = {
        name: Mark(
            f"sent {load[name]['sent']:,}, received {load[name]['received']:,}",
            _quarter(load[name]["sent"] + load[name]["received"], heaviest),
        )
        for name in federation.ids
        if name in load
    }
    text = f"Messages between brokers under {strategy}; the {len(lines)} busiest of {len(mine)} links are drawn."
    return Layer(strategy, strategy, text, marks, lines)


def _quarter(load: int, heaviest: int) -> str:
    return f"load {1 + min(3, 4 * load // heaviest)} of 4" if heaviest else "idle"


def _load(links: Rows) -> dict[str, dict[str, int]]:
    sent, received = Counter[str](), Counter[str]()
    for row in links:
        sent[row["sender"]] += row["messages"]
        received[row["receiver"]] += row["messages"]
    names = dict.fromkeys([*sent, *received])
    return {name: {"sent": sent[name], "received": received[name]} for name in names}


def _results_json(run: dict[str, Any], tables: dict[str, Rows]) -> Json:
    """One run as `geomq evaluate --json` prints it, with histograms for the charts."""
    strategies = {}
    for row in tables["results"]:
        name, number = row["strategy"], run["run"]
        counts = {kind: row[f"{kind}_messages"] for kind in KINDS}
        strategies[name] = {
            "messages": {**counts, "total": sum(counts.values())},
            "latency_ms": statistics_of(tables["histograms"], number, name, "latency"),
            "subscription_delay_ms": statistics_of(tables["histograms"], number, name, "delay"),
            "deliveries": row["deliveries"],
            "redundant": row["redundant_messages"],
            "load": _load([link for link in tables["links"] if link["strategy"] == name]),
            "latency_histogram": [
                [each["ms"], each["count"]]
                for each in tables["histograms"]
                if each["strategy"] == name and each["measure"] == "latency"
            ],
        }
    first = tables["results"][0] if tables["results"] else {"events": 0, "subscriptions": 0}
    return {
        "run": {"number": run["run"], **{name: value for name, value in run.items() if name != "run"}},
        "events": first["events"],
        "subscriptions": first["subscriptions"],
        "cloud": CLOUD_NAME,
        "strategies": strategies,
    }
