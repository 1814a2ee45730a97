"""A process that can be killed or stopped at any point.

Everything that runs for a process carries it in its context, timers and tasks included, so that the loop can drop what
belongs to a dead process and hold back what belongs to a stopped one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Literal, Protocol

Point = Literal["callback", "write", "disk"]


class Crashed(BaseException):
    """Unwinds what a process was doing when it was killed; no handler of a broker's own may stop it."""


class Runnable(Protocol):
    """What waits for a stopped process."""

    def run(self) -> None: ...


class Process:
    """One life of a program. `on_death` is called once, from outside, when it has been killed."""

    def __init__(self, name: str, on_death: Callable[["Process"], object]) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        self.backlog: deque[Runnable] = deque()
        self.tasks: set[asyncio.Task[object]] = set()
        """Kept for as long as the process object: a task of a dead process that is collected runs its `finally`."""
        self._on_death = on_death
        self._doom: tuple[Point, int] | None = None

    def context(self) -> Context:
        """A fresh context in which everything belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def kill_at(self, point: Point, count: int) -> None:
        """Die at the count-th of these points from now on."""
        self._doom = (point, count)

    def spare(self) -> None:
        """It is not to die at such a point any more."""
        self._doom = None

    def reach(self, point: Point) -> None:
        """A point is reached at which the process may be killed; raises Crashed if it is now, or was before."""
        if not self.alive:
            raise Crashed
        if self._doom is not None and self._doom[0] == point:
            left = self._doom[1] - 1
            self._doom = (point, left)
            if left <= 0:
                self.kill()
                raise Crashed

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            self.backlog.clear()
            for task in self.tasks:
                coroutine = task.get_coro()
                if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
                    coroutine.close()  # else Python warns that it was never awaited
            self._on_death(self)


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
