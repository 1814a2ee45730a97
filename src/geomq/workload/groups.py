"""Broadcast groups as the published simulation forms them, once and for a whole run.

Owns the greedy choice of leaders: brokers by descending population (so by clients), each a leader if farther than
the threshold from every leader so far; the rest join the nearest leader. Knows nothing of live formation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.world import GROUP_MS, World


class BroadcastGroups(NamedTuple):
    """Per broker its leader and group number; per group its leader."""

    leader: NDArray[np.int32]
    group: NDArray[np.int32]
    group_leader: NDArray[np.int32]


def form_groups(world: World, threshold_ms: int = GROUP_MS) -> BroadcastGroups:
    """The groups of a world; equal populations are taken in broker order."""
    n = len(world)
    latency = world.latency_ms[:n, :n]
    leaders: list[int] = []
    for broker in np.argsort(-world.populations, kind="stable").tolist():
        if all(latency[broker, leader] > threshold_ms for leader in leaders):
            leaders.append(broker)
    group_leader = np.array(sorted(leaders), np.int32)
    group = np.argmin(latency[:, group_leader], axis=1).astype(np.int32)
    return BroadcastGroups(group_leader[group], group, group_leader)
