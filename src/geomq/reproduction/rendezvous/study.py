"""The measurements of the GeoRendezvous evaluation, one random network at a time.

Owns what is measured and how networks, pairs and topics are drawn; whoever calls decides where it runs. A network is a
pure function of (seed, nodes, number), so the numbers do not depend on the engine. Publishers and
subscribers are nodes of the largest component of cells; anybody outside it could not be routed to.

Hops are counted from cell to cell. The last hop goes to the wanted node itself, which the cell before hears; every node
of a rendezvous cell is responsible, so arriving in the cell is enough. Two nodes are at least one hop apart.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from geomq.reproduction.rendezvous.cells import Cells, cells_of
from geomq.reproduction.rendezvous.network import Network, links_of, random_network
from geomq.reproduction.rendezvous.rendezvous import Options, Rendezvous, by_distance, places_of
from geomq.reproduction.rendezvous.routing import fewest_hops, route_cells
from geomq.workload.compiled import compiled

DEGREE = 45
RENDEZVOUS = 16
FIXED = 8
FOCUS = 600
TRIED = 2
SUBSCRIBERS = 32
STRETCHES = (0.1, 0.25, 0.5, 1.0)
SIGNALLED = (1, 2, 4, 8, 16)
SIZES = (80, 150, 300, 600, 1000, 1500, 2000, 3000)
_NO_PATH = np.empty(0, np.int64)

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """Which networks to measure."""

    sizes: tuple[int, ...]
    networks: int
    pairs: int = 20
    seed: int = 1

    def tasks(self) -> list[tuple[int, int]]:
        """(nodes, number) of every network, the large ones first: they take longest."""
        return [(nodes, number) for nodes in sorted(self.sizes, reverse=True) for number in range(self.networks)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Sums over the pairs of one network; all are whole numbers but `relative` and `growth`."""

    pairs: Numbers
    direct: Numbers
    """Hops of the direct paths, as they are routed."""
    fewest: Numbers
    """The fewest hops from cell to cell between the same nodes."""
    through: Numbers
    """By n: hops of the best path through the first n rendezvous."""
    relative: Numbers
    """By n: the same, each pair divided by its direct path."""
    close: Numbers
    """By m: hops of the best path through the m rendezvous, of 8, that are physically closest to the subscriber."""
    single: Numbers
    """By subscribers: hops of the tree through one rendezvous if every subscriber gets a copy of its own from there."""
    single_shared: Numbers
    """Likewise if a copy is made only where branches part."""
    multiple: Numbers
    """Likewise through 8 rendezvous, of which each subscriber tried 2: a copy for each rendezvous that is used, and one
    for each subscriber from there."""
    multiple_replicated: Numbers
    """Likewise if the rendezvous make copies only where branches part."""
    multiple_shared: Numbers
    """Likewise if the publisher does so, too."""
    wasted: Numbers
    """By n of SIGNALLED: messages to and from rendezvous that a new subscriber then pruned."""
    woken: Numbers
    """Likewise: messages between those rendezvous and a publisher that did not notify them before."""
    distinct: Numbers
    """Likewise: the distinct cells among the n rendezvous."""
    kept: Numbers
    """By k of STRETCHES: random rendezvous nodes within l + 2kl."""
    shortest: Numbers
    """Fewest hops between the nodes of the pairs, by links."""
    longest: Numbers
    """The most hops seen between any two nodes."""
    growth: Numbers
    """The most that a neighbourhood grew when its radius in hops was doubled."""
    outside: Numbers
    """Nodes outside the largest component."""
    homes: Numbers
    """Routes to rendezvous; of these to empty cells; hops of the walks around those; routes that met a dead end."""

    def pack(self) -> bytes:
        return np.concatenate([getattr(self, part.name) for part in fields(self)]).astype("<f8").tobytes()


_LENGTHS = {
    "through": RENDEZVOUS,
    "relative": RENDEZVOUS,
    "close": FIXED,
    **dict.fromkeys(("single", "single_shared", "multiple", "multiple_replicated", "multiple_shared"), SUBSCRIBERS),
    **dict.fromkeys(("wasted", "woken", "distinct"), len(SIGNALLED)),
    "kept": len(STRETCHES),
    "homes": 4,
}


def unpack(data: bytes) -> Sample:
    """The sample in the bytes."""
    numbers, parts, at = np.frombuffer(data, "<f8"), {}, 0
    for part in fields(Sample):
        length = _LENGTHS.get(part.name, 1)
        parts[part.name] = numbers[at : at + length]
        at += length
    return Sample(**parts)


def measure(nodes: int, number: int, plan: StudyPlan) -> Sample:
    """Everything that is measured in one network."""
    dice = np.random.default_rng([plan.seed, nodes, number])
    network = random_network(nodes, DEGREE, dice)
    cells = cells_of(network)
    members = np.flatnonzero(cells.largest_component()[cells.at(network.points)])
    pairs = np.array([dice.choice(members, 2, replace=False) for _ in range(plan.pairs)])
    topics = [f"{plan.seed}/{nodes}/{number}/{pair}" for pair in range(plan.pairs)]
    audience = dice.choice(members, (plan.pairs, SUBSCRIBERS))
    return Sample(
        pairs=np.array([plan.pairs], np.float64),
        outside=np.array([nodes - len(members)], np.float64),
        **_measure_paths(cells, network, pairs, topics),
        **_measure_trees(cells, network, pairs[:, 0], audience, topics),
        **_measure_signals(cells, network, pairs[0], topics[0]),
        **_measure_theorem(network, members, pairs, dice),
    )


def _measure_paths(cells: Cells, network: Network, pairs: NDArray[np.int64], topics: list[str]) -> dict[str, Numbers]:
    at = cells.at(network.points)
    through = np.empty((len(pairs), RENDEZVOUS))
    ranked = np.empty((len(pairs), FIXED))
    direct, fewest = np.empty(len(pairs)), np.empty(len(pairs))
    homes = np.zeros(4)
    for row, (publisher, subscriber) in enumerate(pairs.tolist()):
        places = places_of(topics[row], RENDEZVOUS)
        goals = cells.at(places)
        direct[row] = max(1, _hops(cells, at[publisher], at[subscriber]))
        fewest[row] = max(1, fewest_hops(cells, at[publisher])[at[subscriber]])
        through[row], walks = _through(cells.near, cells.planar, cells.columns, at[publisher], at[subscriber], goals)
        ranked[row] = through[row, by_distance(places[:FIXED], network.points[subscriber])]
        homes += walks
    best = np.minimum.accumulate(through, axis=1)
    return {
        "direct": np.array([direct.sum()]),
        "fewest": np.array([fewest.sum()]),
        "through": best.sum(axis=0),
        "relative": (best / direct[:, None]).sum(axis=0),
        "close": np.minimum.accumulate(ranked, axis=1).sum(axis=0),
        "homes": homes,
    }


def _hops(cells: Cells, start: int, goal: int) -> int:
    hops: int = route_cells(cells.near, cells.planar, cells.columns, start, goal, _NO_PATH)[1]
    return hops


@compiled
def _through(
    near: NDArray[np.uint8],
    planar: NDArray[np.uint8],
    columns: int,
    publisher: int,
    subscriber: int,
    goals: NDArray[np.int64],
) -> tuple[Numbers, Numbers]:
    """Hops through each rendezvous, and what the routes to them met."""
    hops, met = np.empty(len(goals)), np.zeros(4)
    nowhere = np.empty(0, np.int64)
    for number, goal in enumerate(goals):
        home, there, tour, walks, _ = route_cells(near, planar, columns, publisher, goal, nowhere)
        back = route_cells(near, planar, columns, home, subscriber, nowhere)[1]
        hops[number] = max(1, there + back)
        met[0] += 1
        met[1] += home != goal
        met[2] += tour
        met[3] += walks > 0
    return hops, met


def _measure_trees(
    cells: Cells,
    network: Network,
    publishers: NDArray[np.int64],
    audience: NDArray[np.int64],
    topics: list[str],
) -> dict[str, Numbers]:
    """Trees that grow subscriber by subscriber."""
    at = cells.at(network.points)
    single, multiple = np.zeros((3, SUBSCRIBERS)), np.zeros((3, SUBSCRIBERS))
    for publisher, subscribers, topic in zip(publishers.tolist(), audience, topics, strict=True):
        places = places_of(topic, FIXED)
        goals = cells.at(places)
        tried = by_distance(places, network.points[subscribers])[:, :TRIED]
        only = np.zeros((SUBSCRIBERS, 1), np.int64)
        for total, choice in ((single, only), (multiple, tried)):
            total += _grow(cells.near, cells.planar, cells.columns, at[publisher], at[subscribers], goals, choice)
    return {
        "single": single[0],
        "single_shared": single[2],
        "multiple": multiple[0],
        "multiple_replicated": multiple[1],
        "multiple_shared": multiple[2],
    }


@compiled
def _grow(
    near: NDArray[np.uint8],
    planar: NDArray[np.uint8],
    columns: int,
    publisher: int,
    subscribers: NDArray[np.int64],
    goals: NDArray[np.int64],
    tried: NDArray[np.int64],
) -> Numbers:
    """Length of the tree after each subscriber: with a copy for each, copies where branches part after the rendezvous,
    copies where branches part."""
    count = len(goals)
    homes, there = np.empty(count, np.int64), np.empty(count, np.int64)
    steps = np.empty(64 * columns * columns, np.int64)
    for number in range(count):
        homes[number], there[number] = route_cells(near, planar, columns, publisher, goals[number], steps)[:2]
    # A link is used on the way to the rendezvous (row 0) or on the way from the one with that home.
    used = np.zeros((count + 1, columns * columns * 9), np.bool_)
    joined = np.zeros(columns * columns, np.bool_)
    lengths, branches, trunks, trunk_links, links = np.empty((3, len(subscribers))), 0, 0, 0, 0
    for row, subscriber in enumerate(subscribers):
        best, best_back = -1, 0
        for number in tried[row]:
            back = route_cells(near, planar, columns, homes[number], subscriber, steps)[1]
            if best < 0 or there[number] + back < there[best] + best_back:
                best, best_back = number, back
        home = homes[best]
        if not joined[home]:
            joined[home] = True
            trunks += there[best]
            route_cells(near, planar, columns, publisher, goals[best], steps)
            trunk_links += _mark(used[0], columns, publisher, steps[: there[best]])
        branches += best_back
        route_cells(near, planar, columns, home, subscriber, steps)
        first = np.argmax(homes == home)
        links += _mark(used[1 + first], columns, home, steps[:best_back])
        lengths[:, row] = trunks + branches, trunks + links, trunk_links + links
    return lengths


@compiled
def _mark(used: NDArray[np.bool_], columns: int, start: int, steps: NDArray[np.int64]) -> int:
    """Mark the links of a path; how many of them are new."""
    new, before = 0, start
    for cell in steps:
        east, north = cell % columns - before % columns, cell // columns - before // columns
        link = before * 9 + (north + 1) * 3 + east + 1
        new += not used[link]
        used[link] = True
        before = cell
    return new


def _measure_signals(cells: Cells, network: Network, pair: NDArray[np.int64], topic: str) -> dict[str, Numbers]:
    """What a new subscriber that tries all n rendezvous costs in vain, counted message by message."""
    publisher, subscriber = pair.tolist()
    wasted, woken, distinct = [], [], []
    for count in SIGNALLED:
        protocol = Rendezvous(cells, network.points, Options(rendezvous=count, nearest=count))
        advertised = protocol.advertise(publisher, topic, now=0)
        sent = protocol.subscribe(subscriber, topic, now=0) + protocol.publish(publisher, topic).sent
        kept = {each.rendezvous for each in protocol.publish(publisher, topic).sent}
        lost = [each for each in sent if each.rendezvous not in kept]
        own = sum(each.kind in ("subscription", "notification to subscriber", "prune") for each in lost)
        wasted.append(own)
        woken.append(len(lost) - own)
        distinct.append(len(advertised))
    return {
        name: np.array(part, np.float64)
        for name, part in zip(("wasted", "woken", "distinct"), (wasted, woken, distinct), strict=True)
    }


def _measure_theorem(
    network: Network, members: NDArray[np.int64], pairs: NDArray[np.int64], dice: np.random.Generator
) -> dict[str, Numbers]:
    """Section 3's quantities on the unit-disk graph itself."""
    links = links_of(network)
    kept, shortest, longest, growth = np.zeros(len(STRETCHES)), 0, 0, 1.0
    for a, b in pairs.tolist():
        from_a, from_b = links.hops_from(a), links.hops_from(b)
        middle = dice.choice(members)
        length, detour = from_a[b], from_a[middle] + from_b[middle]
        kept += [detour <= length + 2 * k * length for k in STRETCHES]
        shortest += length
        for hops in (from_a, from_b):
            around = np.cumsum(np.bincount(hops[hops >= 0]))
            twice = around[np.minimum(2 * np.arange(len(around)), len(around) - 1)]
            growth = max(growth, float((twice / around).max()))
            longest = max(longest, len(around) - 1)
    return {
        "kept": kept,
        "shortest": np.array([shortest], np.float64),
        "longest": np.array([longest], np.float64),
        "growth": np.array([growth]),
    }
