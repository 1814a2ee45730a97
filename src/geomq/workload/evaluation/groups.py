"""Broadcast groups as the published simulation forms them, once and for a whole run.

Owns the groups of a world: the greedy rule of the routing package, brokers weighed by population (so by clients).
Knows nothing of live formation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.routing.strategies.groups.greedy import greedy_groups
from geomq.workload.world import GROUP_MS, World


class BroadcastGroups(NamedTuple):
    """Per broker its leader and group number; per group its leader."""

    leader: NDArray[np.int32]
    group: NDArray[np.int32]
    group_leader: NDArray[np.int32]


def form_groups(world: World, threshold_ms: int = GROUP_MS) -> BroadcastGroups:
    """The groups of a world."""
    n = len(world)
    leader = greedy_groups(world.latency_ms[:n, :n], world.populations, threshold_ms)
    group_leader, group = np.unique(leader, return_inverse=True)
    return BroadcastGroups(leader.astype(np.int32), group.astype(np.int32), group_leader.astype(np.int32))
