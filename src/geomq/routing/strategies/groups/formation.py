"""The rules by which broadcast groups form, as pure functions of numbers. No messages, no timers.

The live protocol asks them about one request at a time; a simulation of many brokers may ask them about a whole
round. Both must come to the same groups, which is why the rules are here and nowhere else.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from geomq.routing.core.model import BrokerId


class Candidate(NamedTuple):
    """A leader as the negotiation sees it: its Leadership Capability Measure and the size of its group."""

    id: BrokerId
    lcm: float
    size: int


class Negotiation(NamedTuple):
    """The outcome of one negotiation: who leads, and which leaders join it."""

    leader: BrokerId
    joiners: tuple[BrokerId, ...]


def outranks(one: Candidate, other: Candidate) -> bool:
    """The higher measure leads; of equals the larger group; of those the smaller id."""
    if (one.lcm, one.size) != (other.lcm, other.size):
        return (one.lcm, one.size) > (other.lcm, other.size)
    return one.id < other.id


def negotiate(asked: Candidate, requesters: Sequence[Candidate]) -> Negotiation:
    """One round at the asked leader: it joins its best requester if that outranks it, else all of them join it."""
    best = asked
    for requester in requesters:
        if outranks(requester, best):
            best = requester
    if best is asked:
        return Negotiation(asked.id, tuple(requester.id for requester in requesters))
    return Negotiation(best.id, (asked.id,))


def follows(latency_ms: float | None, join_ms: float) -> bool:
    """Whether a broker joins a leader at this latency; at the threshold or beyond, or unmeasured, it does not."""
    return latency_ms is not None and latency_ms < join_ms


def leaves(latency_ms: float | None, leave_ms: float) -> bool:
    """Whether a member gives up a leader at this latency."""
    return latency_ms is not None and latency_ms > leave_ms


def nearest_leader(leaders: Iterable[tuple[BrokerId, float | None]], join_ms: float) -> tuple[BrokerId, float] | None:
    """The leader to ask for a merge and its latency: the nearest below the threshold, of equals the smaller id."""
    near = ((ms, leader) for leader, ms in leaders if ms is not None and follows(ms, join_ms))
    best = min(near, default=None)
    return None if best is None else (best[1], best[0])


def settled(
    leader_of: Mapping[BrokerId, BrokerId],
    latency_ms: Callable[[BrokerId, BrokerId], float],
    join_ms: float,
) -> bool:
    """The paper's end of formation: no two leaders below the threshold, no member beyond it."""
    leaders = sorted(set(leader_of.values()))
    if any(leader_of.get(leader) != leader for leader in leaders):
        return False
    apart = all(not follows(latency_ms(a, b), join_ms) for i, a in enumerate(leaders) for b in leaders[i + 1 :])
    return apart and all(
        follows(latency_ms(member, leader), join_ms) for member, leader in leader_of.items() if member != leader
    )


class LatencyMeans:
    """Per peer the mean of its last probes."""

    def __init__(self, probes: int) -> None:
        self._probes = probes
        self._windows: dict[BrokerId, deque[float]] = {}

    def add(self, peer: BrokerId, latency_ms: float) -> None:
        window = self._windows.get(peer)
        if window is None:
            window = self._windows[peer] = deque(maxlen=self._probes)
        window.append(latency_ms)

    def mean(self, peer: BrokerId) -> float | None:
        window = self._windows.get(peer)
        return sum(window) / len(window) if window else None

    def forget(self, peer: BrokerId) -> None:
        self._windows.pop(peer, None)
