"""The workers of one broker: started with it, started again when they end, ended with it, and which of them gets whom.

Listening and accepting stay with the broker, so that everything that counts or refuses connections is where it was. An
accepted connection goes to the worker that carries the fewest; if there is none just now, the broker carries it itself.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from geomq.broker.config.settings import Listener
from geomq.broker.platform import Platform
from geomq.broker.sockets.accepting import Arriving, Server, Take, open_server
from geomq.broker.sockets.descriptors import RESERVED, Descriptors
from geomq.broker.sockets.tls import settings_of
from geomq.broker.workers.frames import Order
from geomq.broker.workers.line import OpenLine, ProcessLine
from geomq.broker.workers.worker import Worker
from geomq.errors import ConfigError

log = logging.getLogger("geomq.workers")

START_S_MAX: Final = 20.0
PAUSE_S: Final = (0.1, 10.0)
"""Before a worker is started again: at first, and at most."""
STEADY_S: Final = 10.0
"""One that lived for so long counts as sound: it is started again after the shortest pause."""
PING_S: Final = 5.0
END_S: Final = 3.0
"""What workers may take to end when they are asked to."""


class Listen(Protocol):
    """Accepts connections, as `open_server` does."""

    async def __call__(
        self,
        make: Callable[[], Arriving],
        host: str | None,
        port: int,
        *,
        tls: Callable[[], Any],
        end: int | None,
        take: Take | None,
    ) -> Server: ...


class Crew:
    """All workers of one broker, on the running loop."""

    def __init__(
        self,
        count: int,
        listeners: Sequence[Listener],
        platform: Platform,
        *,
        open_line: OpenLine | None = None,
        listen: Listen = open_server,
    ) -> None:
        self._platform = platform
        self._tls = [listener for listener in listeners if listener.tls]
        self._open_line: OpenLine = open_line or partial(ProcessLine, clock_ns=platform.perf_ns)
        self._listen = listen
        self._loop = asyncio.get_running_loop()
        self._pauses_s = dict.fromkeys((str(number) for number in range(1, count + 1)), PAUSE_S[0])
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closing = False
        limit = platform.descriptors().limit
        self._each_max = None if limit is None else max(1, limit - RESERVED)
        """Connections that one worker may carry."""
        self.workers: dict[str, Worker] = {}
        self.restarts = 0

    async def start(self) -> None:
        """Start all of them and wait until they are there; ConfigError if one is not."""
        try:
            started = [self._start(name) for name in self._pauses_s]
            await asyncio.wait_for(asyncio.gather(*[each.ready for each in started]), START_S_MAX)
        except (OSError, TimeoutError) as error:
            await self.stop()
            raise ConfigError(f"[broker] workers: a process could not be started: {error or 'no answer'}") from None
        self._ping()

    def _start(self, name: str) -> Worker:
        worker = self.workers[name] = Worker(name, self._open_line, self._platform, lost=self._lost)
        worker.remote.gathering.say(Order.SET_UP, data=self._settings())
        return worker

    def _settings(self) -> bytes:
        return msgspec.msgpack.encode([settings_of(each) for each in self._tls])

    def set_up(self) -> None:
        """The files of listeners are to be read again."""
        for worker in self.workers.values():
            worker.remote.gathering.say(Order.SET_UP, data=self._settings())

    def _ping(self) -> None:
        self._timers[""] = self._loop.call_later(PING_S, self._ping)
        for worker in tuple(self.workers.values()):
            worker.ping()

    async def stop(self) -> None:
        """Let all of them send what they have, and go."""
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        workers, self.workers = self.workers, {}
        await asyncio.gather(*[worker.end(within_s=END_S) for worker in workers.values()])

    # One ends.

    def _lost(self, worker: Worker) -> None:
        if self.workers.get(worker.name) is worker:
            del self.workers[worker.name]
        if self._closing:
            return
        self.restarts += 1
        pause_s = self._pause_s(worker)
        extra = {
            "worker": worker.name,
            "exit_code": worker.exit_code,
            "connections": len(worker.remote.transports),
            "again_in_s": pause_s,
        }
        log.error("a worker ended", extra=extra)
        self._timers[worker.name] = self._loop.call_later(pause_s, self._start_again, worker.name)

    def _pause_s(self, worker: Worker) -> float:
        """Longer each time, unless it had lived for a while."""
        least, most = PAUSE_S
        sound = self._loop.time() - worker.started_s >= STEADY_S
        pause_s = least if sound else self._pauses_s[worker.name]
        self._pauses_s[worker.name] = min(2 * pause_s, most)
        return pause_s

    def _start_again(self, name: str) -> None:
        try:
            worker = self._start(name)
        except OSError as error:
            log.error("a worker cannot be started", extra={"worker": name, "reason": str(error)})
            self._timers[name] = self._loop.call_later(PAUSE_S[1], self._start_again, name)
        else:
            worker.ready.add_done_callback(partial(self._is_back, name))

    def _is_back(self, name: str, ready: "asyncio.Future[None]") -> None:
        if not ready.cancelled() and ready.exception() is None:
            log.info("a worker is back", extra={"worker": name})

    # Clients.

    async def open_server(
        self,
        listener: Listener,
        make: Callable[[], Arriving],
        *,
        tls: Callable[[], Any],
        end: int | None,
    ) -> Server:
        """Listen as this process would; what is accepted is carried by a worker."""
        number = self._tls.index(listener) if listener.tls else None

        def take(accepted: Any, address: Any) -> bool:
            worker = self._least()
            if worker is not None:
                worker.take(accepted, address, make(), number)
            return worker is not None

        return await self._listen(make, listener.bind_host, listener.bind_port, tls=tls, end=end, take=take)

    def _least(self) -> Worker | None:
        """Who carries the fewest, if there is anybody who can carry more."""
        ready = [worker for worker in self.workers.values() if worker.ready.done()]
        found = min(ready, key=lambda worker: len(worker.remote.transports), default=None)
        if found is None or (self._each_max is not None and len(found.remote.transports) >= self._each_max):
            return None
        return found

    def descriptors(self) -> Descriptors:
        """How many files all workers together may have open, for clients."""
        count = len(self._pauses_s)
        return Descriptors(None if self._each_max is None else count * self._each_max + RESERVED)
