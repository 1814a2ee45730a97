"""Table II of the DisGB paper: what the clients of a scenario do, and what the prototype made of it.

Owns the published rows, ours, and the prototype's rules of telling other brokers, as far as they can be counted from
what clients do alone: events that match elsewhere are the business of engines.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.model import DEGREE, NO_FENCE, Actions, Kind, Workload
from geomq.workload.world import World


class Characteristics(NamedTuple):
    """A row: what a workload's clients do, and how many fences meet more than one area (None: there are no fences)."""

    locations: int
    subscriptions: int
    subscription_overlaps: int | None
    events: int
    event_overlaps: int | None

    def is_like(self, other: "Characteristics", within: float) -> bool:
        """Whether no figure is farther than that share from the other row's."""
        pairs = zip(self, other, strict=True)
        return all(b is None or (a is not None and abs(a - b) <= within * b) for a, b in pairs)


TABLE_II = {
    "open": Characteristics(7_200, 75_168, 1_225, 216_029, None),
    "hiking": Characteristics(193_709, 128_008, 502, 111_811, 623),
    "context": Characteristics(69_236, 5_544, None, 62_675, 222),
}


class Told(NamedTuple):
    """How often the prototype notifies other brokers of clients when events are matched at the publisher's.

    A location update goes to every broker that holds a subscription of the client, even if it says nothing new, and
    besides to each that hears of the client for the first time. `removals`, that a subscription concerns a broker
    no longer, are no updates and stand apart.
    """

    locations: int
    subscriptions: int
    removals: int


def characteristics(world: World, actions: Actions) -> Characteristics:
    """The row of some actions."""
    count = {kind: int((actions.kind == kind).sum()) for kind in Kind}
    overlaps = {kind: _overlaps(world, actions.take(actions.kind == kind)) for kind in (Kind.SUBSCRIPTION, Kind.EVENT)}
    return Characteristics(
        count[Kind.LOCATION],
        count[Kind.SUBSCRIPTION],
        overlaps[Kind.SUBSCRIPTION],
        count[Kind.EVENT],
        overlaps[Kind.EVENT],
    )


def _overlaps(world: World, actions: Actions) -> int | None:
    """How many fences meet more than one area; None if there are no fences."""
    fenced = actions.take(actions.radius_cm != NO_FENCE)
    if not len(fenced):
        return None
    return int((np.bitwise_count(_touched(world, fenced)).sum(axis=1) > 1).sum())


def _touched(world: World, actions: Actions) -> NDArray[np.uint64]:
    places = (actions.lat_e7 / DEGREE, actions.lon_e7 / DEGREE)
    return world.areas.touched_masks(*places, actions.radius_cm / 100.0)


def told(world: World, workload: Workload) -> Told:
    """What the prototype's brokers send each other about these clients."""
    actions = workload.actions.take(workload.actions.kind != Kind.EVENT)
    masks = _touched(world, actions)[:, 0]
    masks[actions.radius_cm == NO_FENCE] = (1 << len(world)) - 1
    others = (masks & ~(np.uint64(1) << workload.clients.home[actions.client].astype(np.uint64))).tolist()
    held: dict[int, dict[int, int]] = {}
    locations = subscriptions = removals = 0
    rows = zip(actions.kind.tolist(), actions.client.tolist(), actions.topic.tolist(), others, strict=True)
    for kind, client, topic, concerned in rows:
        mine = held.setdefault(client, {})
        known = 0
        for mask in mine.values():
            known |= mask
        if kind == Kind.LOCATION:
            locations += known.bit_count()
            continue
        locations += (concerned & ~known).bit_count()
        subscriptions += concerned.bit_count()
        removals += (mine.get(topic, 0) & ~concerned).bit_count()
        mine[topic] = concerned
    return Told(locations, subscriptions, removals)
