"""Events a broker passed on lately, so that a mesh that changes under them loses none.

A broker that joins the mesh, or comes back after a crash, may be on the path to others that an event did not reach. So
whoever gains a mesh neighbour offers it the acknowledged events of the last while; what it had already, it drops.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from geomq.routing.core.model import BrokerId, Event, EventId

RECENT_MAX = 8_192


class Passed:
    """An event, how far it had come, from where, and which neighbours have it."""

    __slots__ = ("event", "holders", "hops", "source", "until_ms")

    def __init__(
        self, event: Event, hops: int, source: BrokerId | None, holders: Iterable[BrokerId], until_ms: float
    ) -> None:
        self.event = event
        self.hops = hops
        self.source = source
        self.holders = set(holders)
        self.until_ms = until_ms


class RecentEvents:
    """Bounded in number and in time."""

    def __init__(self, keep_ms: float, events_max: int = RECENT_MAX) -> None:
        self._keep_ms = keep_ms
        self._events_max = events_max
        self._passed: OrderedDict[EventId, Passed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._passed)

    def note(self, event: Event, hops: int, source: BrokerId | None, targets: list[BrokerId], *, now: float) -> None:
        holders = targets if source is None else [*targets, source]
        self._passed[event.id] = Passed(event, hops, source, holders, now + self._keep_ms)
        if len(self._passed) > self._events_max:
            self._passed.popitem(last=False)

    def current(self, *, now: float) -> Iterator[Passed]:
        """Those not too old yet; the others are forgotten."""
        while self._passed:
            first = next(iter(self._passed.values()))
            if first.until_ms > now:
                break
            self._passed.popitem(last=False)
        return iter(tuple(self._passed.values()))

    def restarted(self, neighbour: BrokerId) -> None:
        """A neighbour may have lost what it had."""
        for passed in self._passed.values():
            passed.holders.discard(neighbour)
