"""`adaptive` on one topic, exact to the tick: the two brokers of each pair are replayed with all their messages.

Owns the rules of the strategy as counters: waste and mode at the home, mode and overpayment at the publisher's broker,
and the messages between them with their latency. Pairs do not influence each other, so each runs by itself; what
happens in the same phase of a tick has the same effect in any order. Only moves concern several topics: of them this
records which broker is sent which, and `told_moves` counts each once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.routing.strategies.adaptive import AdaptiveOptions
from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_messages import CLIENTS_MS, Tally
from geomq.workload.evaluation.pair_traffic import ASSUMPTION, MOVE, SUBSCRIPTION, PairEvents, PairUpdates
from geomq.workload.evaluation.sent import ADAPTIVE, CONTROL, DELIVERY, EVENT
from geomq.workload.evaluation.sent import SUBSCRIPTION as SENT_SUBSCRIPTION
from geomq.workload.evaluation.views import ViewTable
from geomq.workload.world import CLIENT_MS

PATIENCE = int(AdaptiveOptions().patience)
NEVER = 2**62
# Phases inside a tick: what peers sent (updates by their kind, from 0), then what clients sent.
FORWARDED, CONTROLLED, UPDATED, PUBLISHED = 3, 5, 6, 9
PHASES = 16

# The home: events that came in vain, its subscriptions that meet the publisher's area, its mode.
WASTED, COST, ADVERTISING = 0, 1, 2
# The publisher's broker: the mode it knows, changes received less events saved.
ADVERTISED, OVERPAID = 3, 4
# How far the pair's events and updates have been read, and the queues read and written.
EVENT_AT, UPDATE_AT, FORWARD_AT, FORWARD_END, PAID_AT, PAID_END, ASKED_AT, ASKED_END = 5, 6, 7, 8, 9, 10, 11, 12
# When announced modes are at the publisher's broker: to advertise, and no longer to.
MODE_ON, MODE_OFF = 13, 14
# Whether the home knows anything of the publisher's events.
KNOWN = 15
STATE = 16


class Pair(NamedTuple):
    """A publisher's broker, a home, and what is under way between them, oldest first.

    `forwards` are events, `paid` updates the publisher's broker is sent, `asked` the ticks at which its requests for
    the other mode are at the home.
    """

    publisher: int
    home: int
    to_home: int
    to_publisher: int
    state: NDArray[np.int64]
    forwards: NDArray[np.int64]
    paid: NDArray[np.int64]
    asked: NDArray[np.int64]


@compiled
def run_adaptive(
    events: PairEvents, updates: PairUpdates, table: ViewTable, tally: Tally, told: NDArray[np.uint64]
) -> None:
    """All pairs of a topic; `told` gets, by location version, the brokers that are sent the move."""
    brokers = len(table.leader)
    state = np.empty(STATE, np.int64)
    forwards = np.empty(np.diff(events.start).max(), np.int64)
    paid = np.empty(np.diff(updates.start).max(), np.int64)
    asked = np.empty(len(paid), np.int64)
    for number in range(brokers * brokers):
        publisher, home = number // brokers, number % brokers
        if events.start[number] == events.start[number + 1] and updates.start[number] == updates.start[number + 1]:
            continue
        state[:] = 0
        state[EVENT_AT], state[UPDATE_AT] = events.start[number], updates.start[number]
        state[MODE_ON] = state[MODE_OFF] = NEVER
        to_home, to_publisher = table.latency[publisher, home], table.latency[home, publisher]
        pair = Pair(publisher, home, to_home, to_publisher, state, forwards, paid, asked)
        run_pair(events, updates, pair, number, tally, told)


@compiled
def run_pair(
    events: PairEvents, updates: PairUpdates, pair: Pair, number: int, tally: Tally, told: NDArray[np.uint64]
) -> None:
    """Take what happens at either broker in order until nothing is left."""
    state = pair.state
    while True:
        paid, forward, mode, asked = next_arrivals(events, updates, pair)
        update = event = NEVER
        if state[UPDATE_AT] < updates.start[number + 1]:
            i = state[UPDATE_AT]
            update = (updates.t[i] + CLIENT_MS) * PHASES + UPDATED + min(updates.kind[i], SUBSCRIPTION)
        if state[EVENT_AT] < events.start[number + 1]:
            event = (events.t[state[EVENT_AT]] + CLIENT_MS) * PHASES + PUBLISHED
        due = min(paid, forward, mode, asked, update, event)
        if due == NEVER:
            return
        if due == paid:
            take_paid(pair, tally, due // PHASES)
        elif due == forward:
            take_forward(events, pair, tally, due // PHASES)
        elif due == mode:
            take_mode(pair)
        elif due == asked:
            take_asked(pair, tally, due // PHASES)
        elif due == update:
            take_update(updates, pair, tally, told)
        else:
            take_event(events, pair, tally)


@compiled
def next_arrivals(events: PairEvents, updates: PairUpdates, pair: Pair) -> tuple[int, int, int, int]:
    """When the next of each sort of message is at its receiver: update, event, mode, request."""
    state = pair.state
    paid = forward = asked = NEVER
    if state[PAID_AT] < state[PAID_END]:
        i = pair.paid[state[PAID_AT]]
        paid = (updates.t[i] + CLIENT_MS + pair.to_publisher) * PHASES + updates.kind[i]
    if state[FORWARD_AT] < state[FORWARD_END]:
        t = events.t[pair.forwards[state[FORWARD_AT]]]
        forward = (t + CLIENT_MS + pair.to_home) * PHASES + FORWARDED
    if state[ASKED_AT] < state[ASKED_END]:
        asked = pair.asked[state[ASKED_AT]] * PHASES + CONTROLLED
    mode = min(state[MODE_ON], state[MODE_OFF])
    return paid, forward, mode * PHASES + CONTROLLED if mode < NEVER else NEVER, asked


@compiled
def take_event(events: PairEvents, pair: Pair, tally: Tally) -> None:
    """At the publisher's broker: forward it, or match it for the home."""
    state = pair.state
    event = state[EVENT_AT]
    state[EVENT_AT] += 1
    if state[ADVERTISED] == 0:
        tally.sent[ADAPTIVE, EVENT, pair.publisher, pair.home] += 1
        pair.forwards[state[FORWARD_END]] = event
        state[FORWARD_END] += 1
    elif events.placed[event] > 0:
        tally.sent[ADAPTIVE, DELIVERY, pair.publisher, pair.home] += 1
        tally.sent_useful[ADAPTIVE] += 1
        tally.sent_delays[ADAPTIVE, pair.to_home + CLIENTS_MS] += events.placed[event]
    else:
        state[OVERPAID] = max(0, state[OVERPAID] - 1)


@compiled
def take_forward(events: PairEvents, pair: Pair, tally: Tally, tick: int) -> None:
    """At the home: deliver it, or count it as waste and perhaps advertise."""
    state = pair.state
    event = pair.forwards[state[FORWARD_AT]]
    state[FORWARD_AT] += 1
    state[KNOWN] = 1
    if events.direct[event] > 0:
        tally.sent_useful[ADAPTIVE] += 1
        tally.sent_delays[ADAPTIVE, pair.to_home + CLIENTS_MS] += events.direct[event]
    elif state[ADVERTISING] == 0:
        state[WASTED] += 1
        if state[WASTED] >= PATIENCE + state[COST]:
            advertise(pair, tally, tick, pair.to_home)


@compiled
def advertise(pair: Pair, tally: Tally, tick: int, since_ms: int) -> None:
    """Bring all subscriptions concerned to the publisher's broker, and announce it; the cause is `since_ms` old."""
    state = pair.state
    state[WASTED], state[ADVERTISING] = 0, 1
    state[MODE_ON] = tick + pair.to_publisher
    tally.sent[ADAPTIVE, SENT_SUBSCRIPTION, pair.home, pair.publisher] += pair.state[COST]
    tally.sent_updates[ADAPTIVE, since_ms + pair.to_publisher] += pair.state[COST]
    tally.sent[ADAPTIVE, CONTROL, pair.home, pair.publisher] += 1


@compiled
def take_mode(pair: Pair) -> None:
    """At the publisher's broker. If both modes come in one tick, the home advertised in vain: it is as before."""
    state = pair.state
    state[ADVERTISED] = state[MODE_ON] < state[MODE_OFF]
    state[OVERPAID] = 0
    state[MODE_ON] = state[MODE_OFF] = NEVER


@compiled
def take_asked(pair: Pair, tally: Tally, tick: int) -> None:
    """At the home: the publisher's broker pays too much."""
    state = pair.state
    state[ASKED_AT] += 1
    state[KNOWN] = 1
    if state[ADVERTISING] != 0:
        state[ADVERTISING] = 0
        state[MODE_OFF] = tick + pair.to_publisher
        tally.sent[ADAPTIVE, CONTROL, pair.home, pair.publisher] += 1


@compiled
def take_update(updates: PairUpdates, pair: Pair, tally: Tally, told: NDArray[np.uint64]) -> None:
    """At the home: notify the publisher's broker if it holds the subscription, else take it as a saving."""
    state, publisher = pair.state, pair.publisher
    update = state[UPDATE_AT]
    state[UPDATE_AT] += 1
    if updates.kind[update] == ASSUMPTION:
        if state[KNOWN] == 0 and state[ADVERTISING] == 0:
            advertise(pair, tally, updates.t[update] + CLIENT_MS, 0)
        return
    now = int(updates.now[update])
    state[COST] += now - int(updates.before[update])
    if state[ADVERTISING] == 0:
        state[WASTED] = max(0, state[WASTED] - now)
        return
    if updates.kind[update] == MOVE:
        told[updates.row[update], publisher >> 6] |= np.uint64(1) << np.uint64(publisher & 63)
    else:
        tally.sent[ADAPTIVE, SENT_SUBSCRIPTION, pair.home, publisher] += 1
        tally.sent_updates[ADAPTIVE, pair.to_publisher] += 1
    if updates.before[update]:
        pair.paid[state[PAID_END]] = update
        state[PAID_END] += 1


@compiled
def take_paid(pair: Pair, tally: Tally, tick: int) -> None:
    """At the publisher's broker: what it knows has changed; too often, and it asks for the other mode."""
    state = pair.state
    state[PAID_AT] += 1
    if state[ADVERTISED] == 0:
        return
    state[OVERPAID] += 1
    if state[OVERPAID] > 2 * PATIENCE:
        state[OVERPAID] = 0
        tally.sent[ADAPTIVE, CONTROL, pair.publisher, pair.home] += 1
        pair.asked[state[ASKED_END]] = tick + pair.to_home
        state[ASKED_END] += 1
