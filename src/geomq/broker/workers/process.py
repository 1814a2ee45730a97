"""A worker as a process: `python -m geomq.broker.workers.process DESCRIPTOR`. It lives as long as its broker does.

It ends when the broker closes their socket, or dies. What a terminal or a service manager signals is up to the broker.
"""

import asyncio
import gc
import logging
import signal
import socket
import ssl
import sys
from collections import deque
from functools import partial

from geomq.broker.sockets.descriptors import raise_limit
from geomq.broker.sockets.handshakes import Handshakes
from geomq.broker.sockets.loops import loop_factory
from geomq.broker.workers.carrying import Carried, Carrying
from geomq.broker.workers.frames import Cutter, Report
from geomq.broker.workers.pipe import Pipe
from geomq.errors import ProtocolError

FAREWELL_S = 1.0
"""What clients are still to hear when the broker has gone takes no longer."""


class Worker:
    """Joins the socket of the broker with what it carries."""

    def __init__(self, broker: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._cutter = Cutter()
        self._descriptors: deque[int] = deque()
        self._gone = asyncio.Event()
        self._handshakes = Handshakes(loop)
        self.carrying = Carrying(due=lambda: loop.call_soon(self._send), establish=self._establish)
        self._pipe = Pipe(broker, loop, readable=self._read, lost=self._gone.set, drained=self._drained)

    async def run(self) -> None:
        await self._gone.wait()
        for carried in tuple(self.carrying.connections.values()):
            carried.close()
        deadline = self._loop.time() + FAREWELL_S
        while self.carrying.connections and self._loop.time() < deadline:
            await asyncio.sleep(0.01)

    def _read(self) -> None:
        count, descriptors = self._pipe.read_with_descriptors(self._cutter.space())
        self._descriptors += descriptors
        self._cutter.filled(count)
        try:
            self.carrying.obey(self._cutter.entries())
        except ProtocolError as error:
            logging.getLogger("geomq.workers").error("the broker orders nonsense: %s", error)
            self._gone.set()

    def _send(self) -> None:
        self._pipe.write(self.carrying.gathering.take())
        self._drained()

    def _drained(self) -> None:
        self.carrying.waits(self._pipe.waiting_bytes)

    def _establish(self, carried: Carried, tls: ssl.SSLContext | None) -> None:
        if not self._descriptors:
            raise ProtocolError("a connection came without its descriptor")
        came = socket.socket(fileno=self._descriptors.popleft())
        came.setblocking(False)
        task = self._loop.create_task(self._handshakes.connect(carried, came, tls))
        carried.establish(task)
        task.add_done_callback(partial(self._connected, carried, came))

    def _connected(self, carried: Carried, came: socket.socket, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or task.exception() is not None:
            came.close()
            self.carrying.ended(carried.number, broken=True)


class ToBroker(logging.Handler):
    """Sends what is logged to the broker, which has the log."""

    def __init__(self, carrying: Carrying) -> None:
        super().__init__()
        self._carrying = carrying

    def emit(self, record: logging.LogRecord) -> None:
        self._carrying.gathering.say(Report.LOG, record.levelno, self.format(record).encode()[:4096])


async def _main(descriptor: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    loop = asyncio.get_running_loop()
    worker = Worker(socket.socket(fileno=descriptor), loop)
    logger = logging.getLogger("geomq")
    logger.addHandler(ToBroker(worker.carrying))
    logger.setLevel(logging.INFO)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    await worker.run()


if __name__ == "__main__":
    raise_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_main(int(sys.argv[1])))
