"""Turns on the event loop: how long one connection may keep it, and who goes on when others had theirs.

A turn is measured in time, since time is what the others lose; no table of costs could be right for every packet. It
says when to stop and calls back; what was left undone stays with whoever was stopped, in its order.
"""

import asyncio
from collections import deque
from collections.abc import Callable

TURN_NS = 5_000_000
"""How long one connection may take before others are looked at. A step that has begun is finished."""
ROUND_NS = 10_000_000
"""How long all that wait for another turn may take together before the loop looks at its sockets and timers again."""

GoOn = Callable[[], object]


class Turns:
    """The turns of one broker. Whoever is called by the loop calls `begin`, works, asks whether it is `over` after each
    step, and if so calls `wait`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._clock_ns = clock_ns
        self._ends: int | None = None
        self._waiting: deque[GoOn] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def begin(self) -> None:
        """Somebody's turn begins; the clock is read after the first step, so that a single step never reads it."""
        self._ends = None

    def over(self) -> bool:
        """Whether others should be served before the next step."""
        now = self._clock_ns()
        if self._ends is None:
            self._ends = now + TURN_NS
            return False
        return now >= self._ends

    def now_ns(self) -> int:
        """For those who measure a turn of their own, within somebody's or without."""
        return self._clock_ns()

    def wait(self, go_on: GoOn) -> None:
        """Call `go_on` when it has another turn."""
        self._waiting.append(go_on)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._round)

    def _round(self) -> None:
        """Give those who wait now a turn each, as many as there is time for; the rest have theirs in the next round."""
        ends = self._clock_ns() + ROUND_NS
        try:
            for _ in range(len(self._waiting)):
                self.begin()
                self._waiting.popleft()()
                if self._clock_ns() >= ends:
                    break
        finally:
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                self._loop.call_soon(self._round)
