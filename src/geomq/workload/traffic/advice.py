"""Advice from recorded traffic: which strategy, areas and broker places would have served it best, and by how much.

Owns what "best" means: among the strategies that serve everybody, and nearly as fast as the fastest, the one with the
fewest messages (or bytes); of several within a tenth of that, the simplest. Counts are exact for the traffic evaluated;
how sure the choice is, is told by repeating it on halves of the clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from geomq.errors import DataError
from geomq.geo import Circle, Location, distances_m, location_text, unit_vectors
from geomq.routing.core.messages import DropClient, ForwardEvent, PutLocation, PutSubscription
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.federation.outline import Outline, OutlinedBroker
from geomq.routing.wire.frames import encode_frame
from geomq.routing.wire.link import Data
from geomq.workload.evaluation.results import Outcome, Run
from geomq.workload.evaluation.summary import BOUNDS, ORACLE, StrategyResult, statistics
from geomq.workload.model import Kind, Spec
from geomq.workload.traffic.recorded_traffic import Traffic
from geomq.workload.world import World

SIMPLEST_FIRST = (
    "disgb_events",
    "disgb_subscriptions",
    "flood_events",
    "flood_subscriptions",
    "dht",
    "grid_quorum",
    "broadcast_groups",
    "georendezvous",
    "mesh",
    "adaptive",
    "digests",
)
NEAR = 1.10
"""A simpler strategy is preferred as long as it costs at most this much more."""
SLOWER = 1.25
"""A strategy may be this much slower on average than the fastest."""
SERVED = 0.9999
"""Of all deliveries; a strategy that leaves places uncovered makes fewer. The rest is timing."""
AREAS_WORTH = 0.95
SAMPLES = 5
STARTS, ROUNDS = 8, 50
"""How often the search for places begins anew, and how long each may take."""

Prefer = Literal["messages", "bytes", "latency"]
Job = tuple[Run, World, Spec, int, bool]
Evaluate = Callable[[Sequence[Job]], list[Outcome]]


@dataclass(frozen=True)
class Cost:
    """What a strategy would have cost."""

    messages: int
    bytes: int
    latency_ms: float
    p99_ms: float
    deliveries: int

    def as_json(self) -> dict[str, float]:
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "latency_ms": round(self.latency_ms, 3),
            "p99_ms": self.p99_ms,
            "deliveries": self.deliveries,
        }


@dataclass(frozen=True)
class Advice:
    """The answer. `confidence` is the share of samples that agree; `present` is the strategy in use, if known."""

    costs: dict[str, Cost]
    oracle: Cost | None
    strategy: str
    present: str | None
    confidence: float
    samples: int
    outside: float
    areas: "Option | None"
    places: "Option | None"
    notes: tuple[str, ...]
    facts: dict[str, Any]

    @property
    def served(self) -> int:
        """The deliveries there were to make."""
        return max(cost.deliveries for cost in self.costs.values())

    @property
    def saved(self) -> Cost | None:
        """What the change would have saved; None if there is none or the present strategy is unknown."""
        if self.present is None or self.present not in self.costs:
            return None
        old, new = self.costs[self.present], self.costs[self.strategy]
        return Cost(
            old.messages - new.messages,
            old.bytes - new.bytes,
            old.latency_ms - new.latency_ms,
            old.p99_ms - new.p99_ms,
            0,
        )


@dataclass(frozen=True)
class Option:
    """Another way to set up the brokers, a strategy there, its cost, and how far clients are from their broker."""

    outline: Outline
    strategy: str
    cost: Cost
    km: float
    km_now: float


def advise(
    traffic: Traffic,
    evaluate: Evaluate,
    *,
    prefer: Prefer = "messages",
    place: int | None = None,
    samples: int = SAMPLES,
) -> Advice:
    """Evaluate the traffic as it was, halves of it, and whatever else might serve it better; then choose."""
    if not np.any(traffic.actions.kind == Kind.SUBSCRIPTION):
        raise DataError(
            "no subscription to judge strategies by: there was none, or subscriptions were not recorded ([trace] steps)"
        )
    variants = [traffic, *_halves(traffic, samples)]
    nearest = _nearest(traffic)
    placed = None if place is None else place_brokers(traffic, place)
    variants += [variant for variant in (nearest, placed) if variant is not None]
    outcomes = evaluate([_job(variant, number) for number, variant in enumerate(variants)])
    found = [
        costs_of(outcome, traffic.payload_mean, variant.outline)
        for outcome, variant in zip(outcomes, variants, strict=True)
    ]
    chosen = choose(found[0], prefer)
    agree = sum(choose(costs, prefer) == chosen for costs in found[1 : samples + 1])
    others = dict(zip([v is placed for v in variants[samples + 1 :]], found[samples + 1 :], strict=True))
    areas = None
    if nearest is not None and others[False][chosen].messages < AREAS_WORTH * found[0][chosen].messages:
        areas = _option(nearest, chosen, others[False], traffic)
    oracle = outcomes[0].strategies.get(ORACLE)
    return Advice(
        costs=found[0],
        oracle=None if oracle is None else _cost(oracle, traffic.payload_mean),
        strategy=chosen,
        present=traffic.outline.strategy or None,
        confidence=agree / samples if samples else 1.0,
        samples=samples,
        outside=outside_share(traffic),
        areas=areas,
        places=None if placed is None else _option(placed, choose(others[True], prefer), others[True], traffic),
        notes=traffic.notes,
        facts={
            "brokers": len(traffic.outline.brokers),
            "clients": len(traffic.homes),
            "topics": len(traffic.topics),
            "events": outcomes[0].events,
            "subscription_updates": outcomes[0].subscriptions,
            "seconds": round(traffic.spec.end_ms / 1000),
        },
    )


def choose(costs: dict[str, Cost], prefer: Prefer) -> str:
    """The simplest of the strategies that are nearly best."""
    served = max(cost.deliveries for cost in costs.values())
    good = {name: cost for name, cost in costs.items() if cost.deliveries >= SERVED * served}
    if prefer == "latency":
        fastest = min(cost.latency_ms for cost in good.values())
        good = {name: cost for name, cost in good.items() if cost.latency_ms <= fastest + 0.5}
    else:
        fastest = min(cost.latency_ms for cost in good.values())
        good = {name: cost for name, cost in good.items() if cost.latency_ms <= SLOWER * fastest + 1}
    price = {name: cost.bytes if prefer == "bytes" else cost.messages for name, cost in good.items()}
    least = min(price.values())
    return min((name for name in price if price[name] <= NEAR * least), key=_simplicity)


def _simplicity(name: str) -> int:
    return SIMPLEST_FIRST.index(name) if name in SIMPLEST_FIRST else len(SIMPLEST_FIRST)


def costs_of(outcome: Outcome, payload_bytes: float, outline: Outline) -> dict[str, Cost]:
    """By strategy; left out are the lower bounds and what cannot run there."""
    # Its rendezvous places are spread over the whole earth: all of it must be somebody's area.
    impossible = {"georendezvous"} if any(broker.area is not None for broker in outline.brokers) else set()
    return {
        name: _cost(result, payload_bytes)
        for name, result in outcome.strategies.items()
        if name not in BOUNDS and name not in impossible
    }


def _cost(result: StrategyResult, payload_bytes: float) -> Cost:
    sizes = message_sizes(payload_bytes)
    latency = statistics(result.latency)
    return Cost(
        messages=sum(result.messages.values()),
        bytes=round(sum(count * sizes[kind] for kind, count in result.messages.items())),
        latency_ms=float(latency["mean"] or 0.0),
        p99_ms=float(latency["p99"] or 0.0),
        deliveries=int(result.latency.sum()),
    )


def message_sizes(payload_bytes: float) -> dict[str, float]:
    """Bytes on a link by kind of message, those of typical ones as brokers write them."""
    broker, client, place = BrokerId("broker-1"), ClientId("client-0001"), Location(52.52, 13.405)
    event = Event(EventId(broker, 1, 100_000), "area/sensor/value", client, place, Circle(place, 5000.0), b"", 1)
    carried = len(encode_frame(Data(1, 100_000, ForwardEvent(event)))) + payload_bytes
    subscription = PutSubscription(client, "area/sensor/value", Circle(place, 5000.0), place)
    return {
        "event": carried,
        "delivery": carried,
        "subscription": len(encode_frame(Data(1, 100_000, subscription))),
        "location": len(encode_frame(Data(1, 100_000, PutLocation(client, place)))),
        "control": len(encode_frame(Data(1, 100_000, DropClient(client)))),
    }


def outside_share(traffic: Traffic) -> float:
    """How much of what clients did happened outside the area of their broker."""
    lats, lons, clients = traffic.places()
    if not len(lats):
        return 0.0
    owners = traffic.world.areas.owners(lats, lons)
    return float(np.mean((owners != traffic.homes[clients]) & (owners >= 0)))


def place_brokers(traffic: Traffic, count: int) -> Traffic:
    """The traffic with `count` brokers where the clients are, each client at the nearest."""
    lats, lons, clients = traffic.places()
    points = np.stack(unit_vectors(lats, lons), axis=1)
    now = [broker.location for broker in traffic.outline.brokers if broker.location is not None]
    starts = [_spread(points, count)]
    if len(now) == count:
        starts.append(np.stack(unit_vectors(*np.array(now).T), axis=1))
    random = np.random.default_rng(1)
    starts += [points[random.choice(len(points), count, replace=len(points) < count)] for _ in range(STARTS)]
    centres = min((_settled(points, start) for start in starts), key=lambda found: _spread_out(points, found))
    outline = Outline(
        tuple(OutlinedBroker(f"broker-{k + 1}", _degrees(centre)) for k, centre in enumerate(centres)),
        traffic.outline.strategy,
    )
    # A client's home is the broker nearest to where it was on average; one that was nowhere stays with the first.
    middle = np.zeros((len(traffic.homes), 3))
    np.add.at(middle, clients, points)
    homes = np.argmax(middle @ centres.T, axis=1).astype(np.int32)
    return traffic.moved_to(outline, homes)


def _settled(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each place moved to the middle of those it is nearest to, until none moves."""
    for _ in range(ROUNDS):
        nearest = np.argmax(points @ centres.T, axis=1)
        moved = np.stack([_middle(points[nearest == k], centre) for k, centre in enumerate(centres)])
        if np.allclose(moved, centres, atol=1e-9):
            break
        centres = moved
    return centres


def _spread_out(points: NDArray[np.float64], centres: NDArray[np.float64]) -> float:
    """How far points are from their nearest centre, all together."""
    return float(np.arccos(np.clip((points @ centres.T).max(axis=1), -1.0, 1.0)).sum())


def _spread(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """First places: each the point farthest from those before, from the middle outwards; always the same."""
    chosen = [int(np.argmax(points @ points.sum(axis=0)))]
    closeness = points @ points[chosen[0]]
    while len(chosen) < count:
        chosen.append(int(np.argmin(closeness)))
        closeness = np.maximum(closeness, points @ points[chosen[-1]])
    return points[chosen]


def _middle(points: NDArray[np.float64], default: NDArray[np.float64]) -> NDArray[np.float64]:
    total = points.sum(axis=0)
    length = float(np.linalg.norm(total))
    return total / length if length > 1e-9 else default


def _degrees(vector: NDArray[np.float64]) -> tuple[float, float]:
    lat = float(np.degrees(np.arcsin(np.clip(vector[2], -1, 1))))
    return round(lat, 4), round(float(np.degrees(np.arctan2(vector[1], vector[0]))), 4)


def _nearest(traffic: Traffic) -> Traffic | None:
    """The same with everybody's area where it is nearest; None if that is how it is."""
    outline = traffic.outline
    if outline.grid_deg is None and all(broker.area is None for broker in outline.brokers):
        return None
    brokers = tuple(OutlinedBroker(broker.name, broker.location) for broker in outline.brokers)
    return traffic.moved_to(Outline(brokers, outline.strategy), traffic.homes)


def _option(traffic: Traffic, strategy: str, costs: dict[str, Cost], now: Traffic) -> Option:
    return Option(traffic.outline, strategy, costs[strategy], mean_km(traffic), mean_km(now))


def mean_km(traffic: Traffic) -> float:
    """How far from their broker clients act, on average."""
    lats, lons, clients = traffic.places()
    if not len(lats):
        return 0.0
    brokers = np.array([broker.location or (0.0, 0.0) for broker in traffic.outline.brokers])
    home = brokers[traffic.homes[clients]]
    return float(distances_m(lats, lons, home[:, 0], home[:, 1]).mean() / 1000)


def _halves(traffic: Traffic, samples: int) -> list[Traffic]:
    random = np.random.default_rng(1)
    count = len(traffic.homes)
    return [traffic.part(random.permutation(count) < (count + 1) // 2) for _ in range(samples)]


def _job(traffic: Traffic, number: int) -> Job:
    spec, world = traffic.spec, traffic.world
    seconds = spec.end_ms // 1000
    run = Run(number, "trace", "default", len(world), len(traffic.homes), len(traffic.topics), seconds, None, None, 0)
    return run, world, spec, 0, False


def config_lines(advice: Advice) -> list[str]:
    """What to paste into the brokers' config files."""
    lines = ["[routing]", f'strategy = "{advice.strategy}"']
    if advice.areas is not None:
        lines += [
            "",
            "# and no area in [federation] and [[peers]]: every broker is responsible where it is the nearest",
        ]
    if advice.places is not None:
        lines = ["[routing]", f'strategy = "{advice.places.strategy}"']
        for broker in advice.places.outline.brokers:
            place = location_text(Location(*(broker.location or (0.0, 0.0))))
            lines += ["", f"# {broker.name}", "[broker]", f'name = "{broker.name}"', f'location = "{place}"']
    return lines
