"""An event loop that owns the clock: waiting means that time jumps to the next timer.

It knows nothing of the network but that there is one, and runs callbacks of processes only while these live and are
not stopped. With the same callbacks scheduled it runs them in the same order, always.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, TypeVar

from geomq.sim.virtual.network import Network, Server
from geomq.sim.virtual.processes import PROCESS, Crashed, Process, Runnable

T = TypeVar("T")

START_S = 1_000.0
TURN_S = 1e-6
"""Computing takes time, too: otherwise a deadline missed by a rounding error would be looked at forever."""


class Stuck(Exception):  # noqa: N818
    """Nothing is scheduled any more, or too much."""


class Callback(asyncio.TimerHandle):
    """Something to run, and the process it belongs to."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        # What the constructors of both base classes would set; there are hundreds of thousands of these in a run.
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.process: Process | None = self._context.get(PROCESS)

    def run(self) -> None:
        process = self.process
        if process is not None:
            if process.stopped:
                process.backlog.append(self)
                return
            if not process.alive:
                return
            try:
                process.reach("callback")
            except Crashed:
                return
        if not self._cancelled:
            self._run()


class VirtualLoop(asyncio.AbstractEventLoop):
    """Give it to `asyncio.set_event_loop` and call `run_until_complete`."""

    def __init__(self, network: Network) -> None:
        self.now = START_S
        self.network = network
        self.trouble: list[str] = []
        """Exceptions that nobody caught."""
        self.turns = 0
        self._ready: deque[Runnable] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = 0
        self._over = False
        network.loop = self

    # Time.

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        handle = Callback(self.now, callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        handle = Callback(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when their time comes."""

    def resume(self, process: Process) -> None:
        """Let a stopped process go on, first with what it missed."""
        process.stopped = False
        self._ready.extend(process.backlog)
        process.backlog.clear()

    # Running.

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        self._over = False
        events._set_running_loop(self)
        try:
            while not task.done():
                self._turn()
        finally:
            events._set_running_loop(None)
            self._over = True
        return task.result()

    def _turn(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Stuck("nothing is scheduled any more")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            ready.popleft().run()
        self.turns += 1
        self.now += TURN_S

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.add(task)
            task.add_done_callback(process.tasks.discard)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._over

    def is_closed(self) -> bool:
        return self._over

    def close(self) -> None:
        self._over = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._over or isinstance(error, Crashed) or "never retrieved" in str(context.get("message")):
            return
        handle = context.get("handle")
        process = handle.process if isinstance(handle, Callback) else PROCESS.get()
        if process is None or process.alive:
            self.trouble.append(f"{'' if process is None else process.name}: {context.get('message')}: {error!r}")

    # The network.

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> Server:
        return self.network.listen(protocol_factory, host or "", port or 0)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self.network.connect(protocol_factory, host or "", port or 0)


def make_loop(network: Network) -> VirtualLoop:
    """A loop with all that a broker uses of one; whatever else it asks for raises NotImplementedError."""
    return VirtualLoop(network)  # type: ignore[abstract]
