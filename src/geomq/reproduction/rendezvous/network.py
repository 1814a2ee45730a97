"""Wireless nodes: points in the unit square that hear each other within one radius.

Owns where nodes are, how far they reach and the fewest hops between them. Knows nothing of cells or topics. There are
no collisions and no losses.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.workload.compiled import compiled

NODES_MAX = 100_000
UNREACHED = -1


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in the unit square; two of them hear each other if they are at most `radius` apart."""

    points: NDArray[np.float64]
    radius: float


def heard_share(radius: float) -> float:
    """The probability that two uniform points of the unit square are at most `radius` (up to 1) apart."""
    return math.pi * radius**2 - 8 / 3 * radius**3 + radius**4 / 2


def radius_for(nodes: int, degree: float) -> float:
    """The radius at which a node of a random network hears `degree` others on average, those at the border included."""
    if not 2 <= nodes <= NODES_MAX:
        raise UsageError(f"a network has 2 to {NODES_MAX:,} nodes, not {nodes:,}")
    wanted = degree / (nodes - 1)
    if not 0 < wanted < heard_share(1.0):
        raise UsageError(f"{nodes} nodes cannot hear {degree:g} others on average in a square of several cells")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if heard_share(middle) < wanted else (low, middle)
    return high


def random_network(nodes: int, degree: float, dice: np.random.Generator) -> Network:
    """Uniform nodes with the radius that gives them this mean degree."""
    return Network(dice.random((nodes, 2)), radius_for(nodes, degree))


@dataclass(frozen=True, slots=True)
class Links:
    """Who hears whom: the neighbours of node i are `neighbour[start[i]:start[i + 1]]`."""

    start: NDArray[np.int64]
    neighbour: NDArray[np.int64]

    def hops_from(self, node: int) -> NDArray[np.int64]:
        """The fewest hops from a node to every node, UNREACHED where there is no path."""
        hops: NDArray[np.int64] = _hops_from(self.start, self.neighbour, node)
        return hops


def links_of(network: Network) -> Links:
    """All links of a network."""
    buckets = max(1, min(1000, math.floor(1 / network.radius)))
    bucket = np.minimum((network.points * buckets).astype(np.int64), buckets - 1)
    flat = bucket[:, 1] * buckets + bucket[:, 0]
    order = np.argsort(flat, kind="stable")
    first = np.searchsorted(flat[order], np.arange(buckets * buckets + 1))
    counts = _count_or_list(network.points, network.radius, bucket, buckets, order, first, np.empty(0, np.int64))
    start = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    neighbour = np.empty(start[-1], np.int64)
    _count_or_list(network.points, network.radius, bucket, buckets, order, first, neighbour)
    return Links(start, neighbour)


@compiled
def _count_or_list(
    points: NDArray[np.float64],
    radius: float,
    bucket: NDArray[np.int64],
    buckets: int,
    order: NDArray[np.int64],
    first: NDArray[np.int64],
    neighbour: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Count the neighbours of each node and, if there is room, list them. A bucket is at least a radius wide."""
    counts = np.zeros(len(points), np.int64)
    written = 0
    for node in range(len(points)):
        for row in range(max(0, bucket[node, 1] - 1), min(buckets, bucket[node, 1] + 2)):
            begin = first[row * buckets + max(0, bucket[node, 0] - 1)]
            end = first[row * buckets + min(buckets, bucket[node, 0] + 2)]
            for other in order[begin:end]:
                dx, dy = points[node, 0] - points[other, 0], points[node, 1] - points[other, 1]
                if other != node and dx * dx + dy * dy <= radius * radius:
                    counts[node] += 1
                    if len(neighbour):
                        neighbour[written] = other
                        written += 1
    return counts


@compiled
def _hops_from(start: NDArray[np.int64], neighbour: NDArray[np.int64], source: int) -> NDArray[np.int64]:
    hops = np.full(len(start) - 1, UNREACHED, np.int64)
    queue = np.empty(len(start) - 1, np.int64)
    hops[source] = 0
    queue[0] = source
    read, write = 0, 1
    while read < write:
        node = queue[read]
        read += 1
        for other in neighbour[start[node] : start[node + 1]]:
            if hops[other] == UNREACHED:
                hops[other] = hops[node] + 1
                queue[write] = other
                write += 1
    return hops
