"""One worker, as its broker sees it: what it is told in a tick goes together, what it reports is taken in by turns.

One that takes nothing any more, or does not answer, is ended: its clients come back to another.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from geomq.broker.platform import Platform
from geomq.broker.sockets.accepting import Arriving
from geomq.broker.workers.frames import Cutter, Order
from geomq.broker.workers.line import OpenLine
from geomq.broker.workers.remote import Remote
from geomq.errors import ProtocolError

log = logging.getLogger("geomq.workers")

WAITING_BYTES_MAX: Final = 1 << 23
"""While more than this waits for a worker, the broker does nothing but wait for it, as it would for its own writing."""
STUCK_S: Final = 5.0
"""A worker that takes nothing for so long is ended."""
ANSWERS_MISSED_MAX: Final = 3
TURN_NS: Final = 5_000_000
LOOK_AFTER: Final = 16
"""So many entries are taken in before it is looked whether the turn is over."""


class Worker:
    """`lost` is called once, when it has ended, with all its connections; not after `end`."""

    def __init__(
        self, name: str, open_line: OpenLine, platform: Platform, *, lost: Callable[["Worker"], object]
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self.name = name
        self.started_s = loop.time()
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when it is there; ConnectionError if it never was."""
        self.remote = Remote(loop, due=lambda: loop.call_soon(self._send), ready=self._answered, name=name)
        self._clock_ns = platform.turn_ns
        self._report_lost = lost
        self._cutter = Cutter()
        self._entries = self._cutter.entries()
        self._accepted: list[Any] = []
        self._missed = 0
        self._gone = False
        self.line = open_line(self._read, self._lost)

    @property
    def exit_code(self) -> int | None:
        """None as long as it runs."""
        return self.line.exit_code

    def take(self, accepted: Any, address: Any, protocol: Arriving, tls: int | None) -> None:
        """Carry a connection, if its protocol wants it."""
        transport = self.remote.offer(protocol, address)
        if protocol.arrived(transport):
            self._accepted.append(accepted)
            self.remote.hand_over(transport, tls)
        else:
            accepted.close()

    def ping(self) -> None:
        """See whether it answers."""
        if self._missed >= ANSWERS_MISSED_MAX:
            log.error("a worker does not answer", extra={"worker": self.name})
            self._lost()
            return
        self._missed += 1
        self.remote.gathering.say(Order.PING)

    def _answered(self) -> None:
        self._missed = 0
        if not self.ready.done():
            self.ready.set_result(None)

    # Between the loop and the line.

    def _read(self) -> None:
        self._cutter.filled(self.line.read_into(self._cutter.space()))
        self._entries = self._cutter.entries()
        self._hear()

    def _hear(self) -> None:
        """Take in what came, for one turn; the rest when others had theirs."""
        clock_ns, hear = self._clock_ns, self.remote.hear
        ends = clock_ns() + TURN_NS
        try:
            for count, entry in enumerate(self._entries, 1):
                hear(entry)
                if count % LOOK_AFTER == 0 and clock_ns() >= ends:
                    self.line.pause()
                    self._loop.call_soon(self._go_on)
                    return
        except ProtocolError as error:
            log.error("a worker reports nonsense", extra={"worker": self.name, "reason": str(error)})
            self._lost()

    def _go_on(self) -> None:
        if not self._gone:
            self.line.resume()
            self._hear()

    def _send(self) -> None:
        if self._gone:
            return
        accepted, self._accepted = tuple(self._accepted), []
        self.line.write(self.remote.gathering.take(), accepted)
        full = self.line.waiting_bytes > WAITING_BYTES_MAX
        if full and not self.line.wait_until_below(WAITING_BYTES_MAX // 2, STUCK_S):
            log.error("a worker takes nothing", extra={"worker": self.name})
            self._lost()

    # The end.

    def _lost(self) -> None:
        if self._gone:
            return
        self._gone = True
        self.line.kill()
        for each in self._accepted:
            each.close()
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(f"worker {self.name} ended"))
        self._report_lost(self)
        self.remote.lose_all()

    async def end(self, *, within_s: float) -> None:
        """Let it send what it has, and go."""
        self._send()
        deadline = self._loop.time() + within_s
        while not self._gone and self.line.waiting_bytes and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        self._gone = True
        self.line.close()
        while self.line.exit_code is None and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        self.line.kill()
