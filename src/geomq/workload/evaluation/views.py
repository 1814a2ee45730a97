"""Who knows what when: for each strategy, how far behind or ahead of an event the matching broker's knowledge is.

Owns the timing of the paper's strategies as tables over (publisher's home, subscriber's home). An event sent at t
is at its home at t + 5. An update sent at u is at its home at u + 5 and at a broker x after the path's latency more.
Inside a tick, what peers sent comes before what clients sent, and updates come before events; so

- an event forwarded to the subscriber's own home sees updates sent before t + path, not at it (offset path - 1);
- any other meeting sees updates sent up to and including t + event path - update path.

Counts nothing: that is the kernel.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.routing.strategies.grid_quorum import grid_side
from geomq.workload.evaluation.groups import form_groups
from geomq.workload.world import CLIENT_MS, World

# Views: the brokers and instants at which strategies match an event.
DIRECT = 0  # at the subscriber's home, the event sent straight there
AT_PUBLISHER = 1  # at the publisher's home, all subscriptions known there
PLACED = 2  # the same, only subscriptions meant for it known there
TOPIC = 3  # at the topic's broker on the hash ring
ROW = 4  # at the broker in the publisher's row and the subscriber's column, or the other one if there is none
COLUMN = 5  # at the broker in the publisher's column and the subscriber's row, or the other one
CLOUD = 6  # at the cloud broker
RELAYED = 7  # at the subscriber's home, the event sent by way of the cloud
NEAR_FIRST = 8  # at the rendezvous whose place is nearest to the subscriber's home
NEAR_SECOND = 9  # at the next one
VIEWS = 10
# One more, whose offsets change with time: at the subscriber's home, the event sent along a mesh.
MESH = VIEWS
NEVER = -(2**30)


class MeshPaths(NamedTuple):
    """How the events of a topic come to the homes under `mesh`: the row of each event, and by row the offset of each
    home (NEVER: the event does not come there) and the latest of them."""

    row: NDArray[np.int32]
    offset: NDArray[np.int32]
    latest: NDArray[np.int32]


class ViewTable(NamedTuple):
    """Offsets by (view, publisher's home, subscriber's home) and the geometry strategies route by."""

    sub_offset: NDArray[np.int32]
    loc_offset: NDArray[np.int32]
    span: NDArray[np.int32]
    latency: NDArray[np.int32]
    meeting: NDArray[np.int32]
    row_first: NDArray[np.bool_]
    side: int
    leader: NDArray[np.int32]
    group: NDArray[np.int32]
    group_leader: NDArray[np.int32]
    to_cloud: NDArray[np.int32]
    from_cloud: NDArray[np.int32]
    topic_broker: NDArray[np.int32]
    paper: bool
    ways: MeshPaths


def view_table(world: World, *, paper: bool) -> ViewTable:
    """The table of a world; `with_topic_broker` completes it for a topic."""
    n = len(world)
    wires = world.latency_ms
    latency = wires[:n, :n]
    groups = form_groups(world)
    to_cloud = (latency[np.arange(n), groups.leader] + wires[groups.leader, n]).astype(np.int32)
    from_cloud = (wires[n, groups.leader] + latency[groups.leader, np.arange(n)]).astype(np.int32)
    sub = np.zeros((VIEWS, n, n), np.int32)
    same = np.eye(n, dtype=bool)
    sub[DIRECT] = np.where(same, 0, latency - 1)
    sub[AT_PUBLISHER] = sub[PLACED] = -latency.T
    side = grid_side(n)
    meeting, row_first = _fill_grid(sub, latency, side)
    apart = groups.group[:, None] != groups.group[None, :]
    sub[CLOUD] = np.where(apart, to_cloud[:, None] - to_cloud[None, :], sub[DIRECT])
    sub[RELAYED] = np.where(apart, to_cloud[:, None] + from_cloud[None, :] - 1, sub[DIRECT])
    loc = sub.copy()
    loc[CLOUD] = np.where(apart, to_cloud[:, None] - wires[:n, n][None, :], sub[DIRECT])
    longest = int(latency.max(initial=0))
    span = np.array([min(sub.min(), loc.min(), -longest), max(sub.max(), loc.max(), longest)], np.int32)
    return ViewTable(
        sub,
        loc,
        span,
        np.ascontiguousarray(wires),
        meeting,
        row_first,
        side,
        groups.leader,
        groups.group,
        groups.group_leader,
        to_cloud,
        from_cloud,
        np.zeros(1, np.int32),
        paper,
        no_mesh_paths(0, n),
    )


def no_mesh_paths(events: int, brokers: int) -> MeshPaths:
    """Events that come to no home along a mesh."""
    return MeshPaths(np.zeros(events, np.int32), np.full((1, brokers), NEVER, np.int32), np.zeros(1, np.int32))


def with_topic_broker(table: ViewTable, broker: int) -> ViewTable:
    """Set, in place, the offsets that depend on which broker the topic hashes to."""
    n = len(table.leader)
    reach = table.latency[:n, broker]
    offset = reach[:, None] - reach[None, :]
    offset[:, broker] = reach - (reach > 0)
    table.sub_offset[TOPIC] = table.loc_offset[TOPIC] = offset
    table.topic_broker[0] = broker
    return table


def with_near(table: ViewTable, near: NDArray[np.int32]) -> ViewTable:
    """Set, in place, the offsets that depend on which two brokers hold a home's subscriptions; -1: none."""
    n = len(table.leader)
    home = np.arange(n)
    for slot, view in enumerate((NEAR_FIRST, NEAR_SECOND)):
        holder = np.where(near[:, slot] < 0, home, near[:, slot])
        offset = table.latency[:n, holder] - table.latency[home, holder][None, :]
        table.sub_offset[view] = table.loc_offset[view] = offset
    return table


def histogram_size(table: ViewTable, mesh_ms: int = 0) -> int:
    """One more than the longest delivery latency any strategy can produce; along a mesh it is at most `mesh_ms`."""
    n = len(table.leader)
    links = table.latency[:n, :n]
    longest = max(2 * int(links.max(initial=0)), int(table.to_cloud.max() + table.from_cloud.max()), mesh_ms)
    return longest + 2 * CLIENT_MS + 1


def _fill_grid(
    sub: NDArray[np.int32], latency: NDArray[np.int32], side: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Fill in the offsets of the two meeting brokers of a grid quorum: in the publisher's row and in its column.

    Returns these, one and the same where the other would be a hole, and where the one in the row delivers first.
    """
    n = len(latency)
    home, other = np.arange(n)[:, None], np.arange(n)[None, :]
    in_row, in_column = home // side * side + other % side, other // side * side + home % side
    in_row, in_column = np.where(in_row < n, in_row, in_column), np.where(in_column < n, in_column, in_row)
    apart = (home // side != other // side) & (home % side != other % side)
    for view, meeting in ((ROW, in_row), (COLUMN, in_column)):
        sub[view] = np.where(apart, latency[home, meeting] - latency[other, meeting], sub[DIRECT])
    by_row = latency[home, in_row] + latency[in_row, other]
    by_column = latency[home, in_column] + latency[in_column, other]
    return np.stack((in_row, in_column)).astype(np.int32), by_row <= by_column
