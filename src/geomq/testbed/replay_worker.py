"""One process of the replayer: its share of the clients on one event loop, their records in memory until the end.

It connects, says so, waits for the common start, acts every step as near to its time as it can, waits until nothing
more arrives, and writes what was sent and received. Lateness, its own fault, stands beside every step. To be on time it
looks for due steps whenever a client has heard something, too, says what one client has to say by then in one go, and
asks the system for priority, which is granted to some users only.
"""

import asyncio
import contextlib
import gc
import os
import time
from array import array
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.errors import GeomqError, UsageError
from geomq.mqtt.codec.packets import Publish
from geomq.testbed.alarm import Alarm
from geomq.testbed.replay_client import ReplayClient
from geomq.testbed.replay_script import read_stamp, script_of, stamped
from geomq.workload.dataset import DatasetSpec, part_name
from geomq.workload.files import write_table
from geomq.workload.model import generate
from geomq.workload.schema import arrow_schema

WAVE = 100
BATCH = 256
ACT_S_MAX = 0.005
"""After that long of nothing but talking, clients have to listen."""
PRIORITY = -10
NEVER = float("inf")
CONNECT_S_MAX = 60.0
QUIET_S, QUIET_ROUNDS = 0.5, 2
DRAIN_S_MAX = 300.0
COMPLAINTS_MAX = 5


class BrokerAddress(NamedTuple):
    """Where a workload's broker is; `plain` is one that knows no geo-context."""

    name: str
    host: str
    port: int
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker has to do; `clock_ms` turns monotonic seconds into milliseconds since 1970."""

    workload: Path
    brokers: tuple[BrokerAddress, ...]
    out: Path
    part: int
    parts: int
    speed: float
    qos: int
    until_ms: float
    clock_ms: float


@dataclass(slots=True)
class WorkerReport:
    """What a worker found, for the parent to add up."""

    clients: int
    sent: dict[int, int] = field(default_factory=dict)
    received: int = 0
    unsent: int = 0
    foreign: int = 0
    lost: int = 0
    refused: int = 0
    complaints: list[str] = field(default_factory=list)
    cpu_s: float = 0.0


class _Records:
    """Columns that grow while everything is in a hurry."""

    def __init__(self) -> None:
        self.sent_ms = array("d")
        self.sent_step = array("l")
        self.heard_ms = array("d")
        self.stamp_ms = array("d")
        self.heard = array("i")
        """Of each event received: client, topic, publisher, number, whether marked as sent again."""


class Worker:
    """The clients of one process."""

    def __init__(self, task: Task) -> None:
        self._task = task
        spec = DatasetSpec(task.workload)
        workload = generate(spec.world, spec, 0)
        self._actions = workload.actions
        count = len(workload.clients)
        mine = np.arange(count) % task.parts == task.part
        self._homes = workload.clients.home
        plain = np.array([broker.plain for broker in task.brokers])[self._homes]
        self._plain = plain
        self._steps = [step for step in script_of(workload, mine, plain, task.qos) if step.due_ms < task.until_ms]
        self._topic_numbers = {name: number for number, name in enumerate(workload.topic_names)}
        self._numbers = np.flatnonzero(mine).tolist()
        self._clients: dict[int, ReplayClient] = {}
        self._records = _Records()
        self._last_heard_s = 0.0
        self._next = 0
        self._next_due_s = NEVER
        self._armed = False
        self.report = WorkerReport(len(self._numbers))

    async def connect(self) -> None:
        """All clients, some at a time."""
        loop = asyncio.get_running_loop()
        for first in range(0, len(self._numbers), WAVE):
            wave = []
            for number in self._numbers[first : first + WAVE]:
                broker = self._task.brokers[self._homes[number]]
                client = ReplayClient(number, self, plain=bool(self._plain[number]))
                self._clients[number] = client
                wave.append((broker, client))
            try:
                async with asyncio.timeout(CONNECT_S_MAX):
                    await asyncio.gather(
                        *(loop.create_connection(lambda c=c: c, b.host, b.port) for b, c in wave)  # type: ignore[misc]
                    )
                    await asyncio.gather(*(client.ready for _, client in wave))
            except TimeoutError:
                why = self.report.complaints[0] if self.report.complaints else "no answer to CONNECT"
                raise UsageError(f"clients are refused: {why}") from None
            except OSError as error:
                raise UsageError(f"cannot connect to a broker: {error.strerror or error}") from None

    async def act(self, start_s: float) -> None:
        """Every step at its time, then wait until all is quiet."""
        loop = asyncio.get_running_loop()
        self._start_s, self._alarm = start_s, Alarm(loop)
        self._due_s = [start_s + step.due_ms / 1000.0 / self._task.speed for step in self._steps]
        self._done = loop.create_future()
        self._wake_for_next()
        await self._done
        self._alarm.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S_MAX):
                await self._drain()

    async def leave(self) -> None:
        """Everybody says goodbye."""
        for client in self._clients.values():
            client.leave()
        await asyncio.sleep(0.05)

    async def _drain(self) -> None:
        """Until brokers have twice dealt with everything and nothing came with it: events cross links too."""
        quiet = 0
        while quiet < QUIET_ROUNDS:
            last_heard_s = self._last_heard_s
            await asyncio.gather(*(client.ping() for client in self._clients.values()))
            await asyncio.sleep(QUIET_S)
            quiet = quiet + 1 if self._last_heard_s == last_heard_s else 0

    def _wake_for_next(self) -> None:
        if self._next == len(self._steps):
            self._next_due_s = NEVER
            if not self._done.done():
                self._done.set_result(None)
            return
        self._next_due_s = self._due_s[self._next]
        if not self._armed:
            self._armed = True
            self._alarm.set(self._next_due_s, self._ring)

    def _ring(self) -> None:
        self._armed = False
        self._act_now()

    def _act_now(self) -> None:
        """The steps that are due; after a while the loop has its turn, for what clients hear meanwhile."""
        due_s, ends_s = self._due_s, time.monotonic() + ACT_S_MAX
        while self._next < len(due_s):
            now_s = time.monotonic()
            if due_s[self._next] > now_s or now_s > ends_s:
                break
            last = min(bisect_right(due_s, now_s, self._next), self._next + BATCH)
            by_client: dict[int, list[int]] = {}
            for number in range(self._next, last):
                by_client.setdefault(self._steps[number].client, []).append(number)
            for client, numbers in by_client.items():
                self._send(client, numbers)
            self._next = last
        self._wake_for_next()

    def _send(self, client: int, numbers: list[int]) -> None:
        """Everything one client has to send by now."""
        steps = self._steps
        sent_ms = time.monotonic() * 1000.0 + self._task.clock_ms
        if self._clients[client].send([stamped(steps[number], sent_ms) for number in numbers]):
            self._records.sent_ms.extend([sent_ms] * len(numbers))
            self._records.sent_step.extend(numbers)
        else:
            self.report.unsent += len(numbers)

    # What clients hear.

    def heard(self, client: int, publish: Publish, at_s: float) -> None:
        self._last_heard_s = at_s
        stamp = read_stamp(publish.payload)
        if stamp is None:
            self.report.foreign += 1
            return
        publisher, number, sent_ms = stamp
        records = self._records
        records.heard_ms.append(at_s * 1000.0 + self._task.clock_ms)
        records.stamp_ms.append(sent_ms)
        topic = self._topic_numbers.get(publish.topic, -1)
        records.heard.extend((client, topic, publisher & 0x7FFF_FFFF, number & 0x7FFF_FFFF, publish.dup))
        if at_s >= self._next_due_s:
            self._act_now()

    def refused(self, client: int, what: str) -> None:
        self.report.refused += 1
        self._complain(f"client {client}: {what}")

    def lost(self, client: int, why: str) -> None:
        self.report.lost += 1
        self._complain(f"client {client} lost its connection{': ' if why else ''}{why}")

    def _complain(self, text: str) -> None:
        if len(self.report.complaints) < COMPLAINTS_MAX:
            self.report.complaints.append(text)

    def write(self) -> None:
        """Put the records on disk."""
        task, records = self._task, self._records
        steps = [self._steps[number] for number in records.sent_step]
        clients = np.array([step.client for step in steps], np.int32)
        start_ms = self._start_s * 1000.0 + task.clock_ms
        sent = {
            "t_ms": np.asarray(records.sent_ms),
            "due_ms": np.array([step.due_ms for step in steps]) / task.speed + start_ms,
            "client": clients,
            "home": self._homes[clients],
            "kind": np.array([step.kind for step in steps], np.uint8),
            "number": np.array([step.number for step in steps], np.int32),
        }
        rows = np.array([step.row for step in steps], np.intp)
        sent |= {name: getattr(self._actions, name)[rows] for name in ("topic", "lat_e7", "lon_e7", "radius_cm")}
        heard = np.asarray(records.heard, np.int32).reshape(-1, 5)
        received = {
            "t_ms": np.asarray(records.heard_ms),
            "client": heard[:, 0],
            "home": self._homes[heard[:, 0]],
            "topic": heard[:, 1],
            "publisher": heard[:, 2],
            "number": heard[:, 3],
            "sent_ms": np.asarray(records.stamp_ms),
            "dup": heard[:, 4].astype(bool),
        }
        _write_columns(sent, "sent", task)
        _write_columns(received, "received", task)
        self.report.sent = dict(Counter(step.kind for step in steps))
        self.report.received = len(heard)
        self.report.cpu_s = time.process_time()


def _write_columns(columns: dict[str, NDArray[Any]], dataset: str, task: Task) -> None:
    import pyarrow as pa

    table = pa.table(columns, schema=arrow_schema(dataset))
    write_table(table, task.out / part_name(dataset, task.part))


def work(task: Task, parent: Connection) -> None:
    """The life of a worker process: it says `ready`, is told when to start, says `quiet`, is told to leave, reports."""
    try:
        worker = Worker(task)
        with asyncio.Runner(loop_factory=_loop_factory) as runner:
            runner.run(_run(worker, parent))
        worker.write()
        parent.send(worker.report)
    except GeomqError as error:
        parent.send(str(error))
    except (EOFError, KeyboardInterrupt):
        pass


async def _run(worker: Worker, parent: Connection) -> None:
    await worker.connect()
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a collection would be lateness
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    parent.send("ready")
    await worker.act(await asyncio.to_thread(parent.recv))
    parent.send("quiet")
    await asyncio.to_thread(parent.recv)
    await worker.leave()


def _loop_factory() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
