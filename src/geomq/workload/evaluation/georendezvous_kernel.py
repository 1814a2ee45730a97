"""`georendezvous` on one topic, exact to the tick: each publisher's broker is replayed with all it sets going.

Owns the rules of the strategy: which rendezvous is sent an event, which home is notified by whom, which path is cut,
which rendezvous is pruned and grafted again. What a broker's events teach others concerns that broker alone, so each
runs by itself. Matches are given by pattern: bits for the home's two rendezvous and for the home itself.
"""

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_messages import PATTERNS, Tally
from geomq.workload.evaluation.rendezvous_places import NEAREST, NOBODY, Rendezvous
from geomq.workload.evaluation.sent import CONTROL, DELIVERY, EVENT, GEORENDEZVOUS
from geomq.workload.evaluation.views import ViewTable
from geomq.workload.world import CLIENT_MS

# What happens, in the order of phases inside a tick.
TOLD, FORWARDED, DELIVERED, CONTROLLED, SUBSCRIBED, PUBLISHED = 1, 3, 4, 5, 7, 9
INTEREST, PUBLISH, FORWARD, DELIVER, CUT, PRUNE, GRAFT = 0, 1, 2, 3, 4, 5, 6
# The bit of a match at the home itself; those before it are the home's rendezvous.
SELF = NEAREST
FIRST_PATTERN = 2

Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]
# Tick, phase, client and time of origin, running number; what happens, where, from whom, event.
Item = tuple[int, int, int, int, int, int, int, int, int]


class Published(NamedTuple):
    """One broker's events on the topic by time and client; the matches of event i are rows first[i] to last[i]."""

    t: Ints
    client: Ints
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    found: Ints


class Interests(NamedTuple):
    """The first subscription of each home, where it is known: tick, phase, origin, rendezvous, home."""

    tick: Ints
    phase: Ints
    client: Ints
    t: Ints
    at: Ints
    home: Ints


class Learned(NamedTuple):
    """What brokers know about one publisher's broker; by event and home what came, by which way, and to what use;
    and how many items were queued."""

    homes: Flags
    cut: Flags
    quiet: Flags
    pruned: Flags
    came_by: NDArray[np.int16]
    had: NDArray[np.uint8]
    used: Flags
    pushed: NDArray[np.int64]


def nothing_learned(events: int, brokers: int) -> Learned:
    """What brokers know before the first event."""
    return Learned(
        np.zeros((brokers, brokers), np.bool_),
        np.zeros((brokers, brokers), np.bool_),
        np.zeros(brokers, np.bool_),
        np.zeros(brokers, np.bool_),
        np.full((events, brokers), NOBODY, np.int16),
        np.zeros((events, brokers), np.uint8),
        np.zeros((events, brokers), np.bool_),
        np.zeros(1, np.int64),
    )


@compiled
def run_publisher(
    publisher: int,
    events: Published,
    interests: Interests,
    places: Rendezvous,
    table: ViewTable,
    tally: Tally,
    learned: Learned,
) -> None:
    """Everything one broker's events on a topic set going."""
    queue = [(0, 0, 0, 0, 0, 0, 0, 0, 0) for _ in range(0)]
    for i in range(len(interests.t)):
        what = (interests.tick[i], interests.phase[i], interests.client[i], interests.t[i])
        push(queue, learned, what, INTEREST, interests.at[i], interests.home[i], 0)
    for event in range(len(events.t)):
        what = (events.t[event] + CLIENT_MS, PUBLISHED, events.client[event], events.t[event])
        push(queue, learned, what, PUBLISH, publisher, publisher, event)
    while len(queue) > 0:
        item = heapq.heappop(queue)
        kind, at, sender, event = item[5], item[6], item[7], item[8]
        if kind == INTEREST:
            take_interest(queue, learned, table, tally, item, publisher)
        elif kind == PUBLISH:
            take_event(queue, learned, events, places, table, tally, item)
        elif kind == FORWARD:
            take_forward(queue, learned, events, places, table, tally, item)
        elif kind == DELIVER:
            compare_paths(queue, learned, places, table, tally, item, publisher, sender)
            serve(learned, events, places, tally, item, publisher, sender)
        elif kind == CUT:
            learned.cut[at, sender] |= learned.homes[at, sender]
        elif kind == PRUNE:
            learned.pruned[sender] = True
        else:
            learned.pruned[sender] = False


@compiled
def push(
    queue: list[Item],
    learned: Learned,
    what: tuple[int, int, int, int],
    kind: int,
    at: int,
    sender: int,
    event: int,
) -> None:
    learned.pushed[0] += 1
    t, phase, client, origin = np.int64(what[0]), np.int64(what[1]), np.int64(what[2]), np.int64(what[3])
    about = (np.int64(kind), np.int64(at), np.int64(sender), np.int64(event))
    row = (t, phase, client, origin, learned.pushed[0], about[0], about[1], about[2], about[3])
    heapq.heappush(queue, row)  # type: ignore[misc]


@compiled
def send(
    queue: list[Item],
    learned: Learned,
    table: ViewTable,
    cause: Item,
    phase: int,
    kind: int,
    sender: int,
    to: int,
) -> None:
    """A message caused by what just happened; it concerns the same event, and but for control has the same origin."""
    client, t = (0, 0) if phase == CONTROLLED else (cause[2], cause[3])
    what = (cause[0] + table.latency[sender, to], phase, client, t)
    push(queue, learned, what, kind, to, sender, cause[8])


@compiled
def needed(learned: Learned, rendezvous: int, publisher: int) -> bool:
    """Whether any home needs the publisher's events from this rendezvous."""
    for home in range(len(learned.quiet)):
        if learned.homes[rendezvous, home] and home != publisher and not learned.cut[rendezvous, home]:
            return True
    return False


@compiled
def take_interest(
    queue: list[Item], learned: Learned, table: ViewTable, tally: Tally, item: Item, publisher: int
) -> None:
    """A rendezvous learns of a home for the first time; it may be needed again."""
    at, home = item[6], item[7]
    learned.homes[at, home] = True
    if learned.quiet[at] and needed(learned, at, publisher):
        learned.quiet[at] = False
        tally.sent[GEORENDEZVOUS, CONTROL, at, publisher] += 1
        send(queue, learned, table, item, CONTROLLED, GRAFT, at, publisher)


@compiled
def take_event(
    queue: list[Item],
    learned: Learned,
    events: Published,
    places: Rendezvous,
    table: ViewTable,
    tally: Tally,
    item: Item,
) -> None:
    """At the publisher's broker: send it to the rendezvous; if it is one, notify homes. Own clients are served."""
    publisher = item[6]
    for slot in range(places.known.shape[1]):
        rendezvous = places.known[publisher, slot]
        if rendezvous < 0 or rendezvous == publisher or learned.pruned[rendezvous]:
            continue
        tally.sent[GEORENDEZVOUS, EVENT, publisher, rendezvous] += 1
        send(queue, learned, table, item, FORWARDED, FORWARD, publisher, rendezvous)
    tell_homes(queue, learned, events, places, table, tally, item, publisher)


@compiled
def take_forward(
    queue: list[Item],
    learned: Learned,
    events: Published,
    places: Rendezvous,
    table: ViewTable,
    tally: Tally,
    item: Item,
) -> None:
    """At a rendezvous: serve own clients, notify homes, and prune if nobody needs it."""
    at, publisher = item[6], item[7]
    compare_paths(queue, learned, places, table, tally, item, publisher, at)
    serve(learned, events, places, tally, item, publisher, at)
    tell_homes(queue, learned, events, places, table, tally, item, publisher)
    if not needed(learned, at, publisher):
        learned.quiet[at] = True
        tally.sent[GEORENDEZVOUS, CONTROL, at, publisher] += 1
        send(queue, learned, table, item, CONTROLLED, PRUNE, at, publisher)


@compiled
def tell_homes(
    queue: list[Item],
    learned: Learned,
    events: Published,
    places: Rendezvous,
    table: ViewTable,
    tally: Tally,
    item: Item,
    publisher: int,
) -> None:
    """Notify the homes with a match here, unless they are notified by a shorter path."""
    at, event = item[6], item[8]
    for row in range(events.first[event], events.last[event]):
        home = events.found[row, 1]
        way = way_of(places, home, at)
        if home in (at, publisher) or way < 0 or learned.cut[at, home]:
            continue
        if matching(events.found, row, way, 0) > 0:
            tally.sent[GEORENDEZVOUS, DELIVERY, at, home] += 1
            send(queue, learned, table, item, DELIVERED, DELIVER, at, home)


@compiled
def way_of(places: Rendezvous, home: int, via: int) -> int:
    """The bit of a broker that matches for a home, or NOBODY."""
    if via == home:
        return SELF
    for slot in range(NEAREST):
        if places.near[home, slot] == via:
            return slot
    return NOBODY


@compiled
def matching(found: Ints, row: int, way: int, had: int) -> int:
    """How many subscribers match by this way and by none of those they had the event by."""
    total = 0
    for pattern in range(1, PATTERNS):
        if (pattern >> way) & 1 and pattern & had == 0:
            total += found[row, FIRST_PATTERN + pattern]
    return total


@compiled
def serve(
    learned: Learned, events: Published, places: Rendezvous, tally: Tally, item: Item, publisher: int, via: int
) -> None:
    """At a home: hand the event to those matched by `via` who have not had it."""
    home, event = item[6], item[8]
    for row in range(events.first[event], events.last[event]):
        if events.found[row, 1] != home:
            continue
        way = way_of(places, home, via)
        fresh = matching(events.found, row, way, int(learned.had[event, home]))
        learned.had[event, home] |= np.uint8(1 << way)
        if fresh > 0:
            tally.sent_delays[GEORENDEZVOUS, item[0] + CLIENT_MS - item[3]] += fresh
            tally.sent_useful[GEORENDEZVOUS] += via != home
            if not learned.used[event, via]:
                learned.used[event, via] = True
                tally.sent_useful[GEORENDEZVOUS] += via != publisher
        return


@compiled
def compare_paths(
    queue: list[Item],
    learned: Learned,
    places: Rendezvous,
    table: ViewTable,
    tally: Tally,
    item: Item,
    publisher: int,
    via: int,
) -> None:
    """An event that came to a home by two rendezvous: cut the longer path."""
    home, event = item[6], item[8]
    first = int(learned.came_by[event, home])
    if first < 0 or first == via:
        learned.came_by[event, home] = via
        return
    a = places.apart_m[publisher, first] + places.apart_m[first, home]
    b = places.apart_m[publisher, via] + places.apart_m[via, home]
    keep = a < b or (a == b and places.name_rank[first] < places.name_rank[via])
    better, worse = (first, via) if keep else (via, first)
    learned.came_by[event, home] = better
    if worse != home:
        tally.sent[GEORENDEZVOUS, CONTROL, home, worse] += 1
        send(queue, learned, table, item, CONTROLLED, CUT, home, worse)
