"""An event loop for tests whose clock stands still while the machine is busy with something else.

A loop that gets no processor for a second finds all its timers due at once, before what they were to wait for could
happen: a pause is over before anything was done in it, a time limit passed that nobody used up. Here a moment counts
only if the loop could have worked in it: what it waits longer than it asked for, or is held up between two looks at its
sockets, is taken off its clock. Timers fire as late as that, never early.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LATE_S = 0.02
"""By as much a timer may be late on a machine with time to spare."""


class _Watching(selectors.DefaultSelector):
    """Notes how long the loop was kept from its work."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_s = 0.0
        self._returned = (time.monotonic(), time.thread_time())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = time.monotonic()
        returned_s, worked_s = self._returned
        self._lose(began_s - returned_s - (time.thread_time() - worked_s))
        found = super().select(timeout)
        ended_s = time.monotonic()
        if timeout is not None:
            self._lose(ended_s - began_s - max(0.0, timeout))
        self._returned = (ended_s, time.thread_time())
        return found

    def _lose(self, idle_s: float) -> None:
        self.lost_s += max(0.0, idle_s - LATE_S)


class PatientLoop(asyncio.SelectorEventLoop):
    """Counts only the time in which it could work."""

    def __init__(self) -> None:
        self._watching = _Watching()
        super().__init__(self._watching)

    def time(self) -> float:
        return super().time() - self._watching.lost_s


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on such a loop."""
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        return runner.run(main)
