"""What it takes one who knows the future: the fewest messages between two brokers on a topic, telling included.

A publisher's broker either sends the other every event whose fence meets its area, or has been told who wants what
there, and sends what serves somebody. Being told is one message that says all as it is at that moment. It stays enough
as long as every event that serves somebody serves at least one subscriber who has been as he is since before the
telling; what has ended need not be taken back. That nobody wants anything at first need not be told. Knowing the
future, both change at will between the two ways, tell at the best moment, and need no time for it.

This is the least for whoever tells topic by topic what is wanted at that moment. A strategy that tells of several
topics at once, or tells more than is wanted so that it need not tell again, may send less.

Owns the choice, one pass over the events of each pair of brokers.
"""

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_messages import Tally
from geomq.workload.evaluation.pair_traffic import PairEvents
from geomq.workload.evaluation.sent import CLAIRVOYANT, EVENT, SUBSCRIPTION

# The ways that are worth going on with, and of each: what it has cost, how often was told, and when last. Of those that
# were told, one that cost more is only better if it was told later, and no way is ever two behind another.
UNTOLD, EARLY, LATE = 0, 1, 2
COST, TIMES, LAST = 0, 1, 2
NEVER = 2**62


@compiled
def run_clairvoyant(events: PairEvents, tally: Tally) -> None:
    """All pairs of a topic: events that serve nobody, and tellings."""
    brokers = len(tally.published)
    ways = np.empty((3, 3), np.int64)
    for pair in range(brokers * brokers):
        first, end = events.start[pair], events.start[pair + 1]
        if first == end:
            continue
        begin(ways)
        for event in range(first, end):
            take_event(ways, events.t[event], events.since[event], events.direct[event] > 0)
        best = cheapest(ways)
        publisher, home = pair // brokers, pair % brokers
        tally.sent[CLAIRVOYANT, EVENT, publisher, home] += ways[best, COST] - ways[best, TIMES]
        tally.sent[CLAIRVOYANT, SUBSCRIPTION, home, publisher] += ways[best, TIMES]


@compiled
def begin(ways: NDArray[np.int64]) -> None:
    """It costs nothing to have agreed beforehand that everything is sent, or nothing."""
    ways[:] = 0
    ways[EARLY, LAST] = -1
    ways[LATE, COST] = NEVER


@compiled
def cheapest(ways: NDArray[np.int64]) -> int:
    best = UNTOLD
    for way in (EARLY, LATE):
        if ways[way, COST] < ways[best, COST]:
            best = way
    return best


@compiled
def take_event(ways: NDArray[np.int64], t: int, since: int, serves: bool) -> None:
    """The next event, and who is served has been as he is `since` then."""
    best = cheapest(ways)
    cost, times = ways[best, COST], ways[best, TIMES]
    if serves:
        forget_before(ways, min(t, since))
    ways[UNTOLD, COST], ways[UNTOLD, TIMES] = cost + (0 if serves else 1), times
    if cost + 1 <= ways[EARLY, COST]:
        ways[EARLY, COST], ways[EARLY, TIMES], ways[EARLY, LAST] = cost + 1, times + 1, t
        ways[LATE, COST] = NEVER
    else:
        ways[LATE, COST], ways[LATE, TIMES], ways[LATE, LAST] = cost + 1, times + 1, t


@compiled
def forget_before(ways: NDArray[np.int64], since: int) -> None:
    """Who was told last before that does not know of this interest."""
    if ways[LATE, LAST] < since:
        ways[LATE, COST] = NEVER
    if ways[EARLY, LAST] < since:
        ways[EARLY] = ways[LATE]
        ways[LATE, COST] = NEVER
