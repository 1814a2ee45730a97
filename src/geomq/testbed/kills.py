"""One broker process that is killed again and again under full load, and what its acknowledgements were worth.

    python -m geomq.testbed.kills                        # 200 kills, a million acknowledged events
    python -m geomq.testbed.kills --broker all --kills 20 --messages 100000
    python -m geomq.testbed.kills --workers 2            # of four kills three meet a worker, one the broker
    python -m geomq.testbed.kills --power --kills 20     # the power of its disk fails, too; needs root

Senders of QoS 1 and 2 publish numbered events as fast as they are acknowledged; receivers with kept sessions want all
of them. Runs on GeoMQ, and for comparison on Mosquitto with and without persistence.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.local_federation import HOST, free_ports
from geomq.mqtt.client.events import Accepted, Acknowledged, Connected, Event
from geomq.mqtt.codec.packets import Publish, Subscribe, SubscribeRequest
from geomq.testbed.power import FailingDisk
from geomq.testbed.processes import BrokerProcess, ChildProcess, MosquittoProcess, stoppable
from geomq.testbed.streams import Role, lasting_link

Kind = Literal["geomq", "geomq-unsynced", "mosquitto", "mosquitto-persistent", "mosquitto-saving"]
"""`geomq-unsynced` trusts the system's cache (`persistence.sync = false`); `mosquitto-persistent` saves every half hour
and when it stops, as is its default, `mosquitto-saving` after every change."""
KINDS: tuple[Kind, ...] = get_args(Kind)

SENDERS_PER_QOS = 4
WINDOW = 100
"""How many events of one sender wait for their acknowledgement."""
WAITS_MAX = 1_000_000
BROKER_EVERY = 4
"""With workers, this one of so many kills meets the broker."""
SETTLE_S_MAX = 30.0
START_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class KillPlan:
    """So many acknowledged events, and so many kills spread evenly over them."""

    kind: Kind = "geomq"
    kills: int = 200
    messages: int = 1_000_000
    workers: int = 1
    """How many carry clients; from 2 on they are killed, too."""
    power: bool = False
    """Whether what the broker did not sync is lost with it."""


@dataclass(slots=True)
class KillVerdict:
    """Numbers of events; `repeated` are QoS 1 events that came more than once, as they may."""

    kind: Kind
    kills: int
    power: bool = False
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    repeated: int = 0
    out_of_order: int = 0
    sessions_lost: int = 0
    back_ms_median: float = 0.0
    back_ms_max: float = 0.0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.sessions_lost)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Sender:
    """Publishes 1, 2, 3, ... on a topic of its own."""

    def __init__(self, role: Role) -> None:
        self.topic = role.topic
        self.qos = role.qos
        self.published = 0
        self.acknowledged = bytearray(1)
        """By number: whether a broker took responsibility for it."""
        self.count = 0
        self._stopping = False
        self._session = role.session()
        self._link = lasting_link(self._session, role.port, self._on_event)

    @property
    def finished(self) -> bool:
        return self._stopping and not len(self._session.requests)

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        await self._link.run()

    def _on_event(self, event: Event) -> None:
        match event:
            case Accepted(request=request) if request.tag is not None:
                self._acknowledged(request.tag)
            case Acknowledged(request=request, refusal=None) if request.qos == 1:
                self._acknowledged(request.tag)
        self._publish()

    def _acknowledged(self, number: object) -> None:
        assert isinstance(number, int)
        self.count += not self.acknowledged[number]
        self.acknowledged[number] = 1

    def _publish(self) -> None:
        now = asyncio.get_running_loop().time()
        while not self._stopping and self._session.up and len(self._session.requests) < WINDOW:
            self.published += 1
            self.acknowledged.append(0)
            self._session.publish(Publish(self.topic, b"%d" % self.published, self.qos), now, tag=self.published)
        self._link.flush()


class _Receiver:
    """Counts how often each event of each sender came, and the first arrivals that followed a later event."""

    def __init__(self, role: Role) -> None:
        self.ready = asyncio.Event()
        self.came = 0
        self.received: dict[str, Counter[int]] = {}
        self.out_of_order = 0
        self.sessions_lost = 0
        self._latest: dict[str, int] = {}
        self._session = role.session(resubscribes=True)
        self._session.subscribe(SubscribeRequest(role.topic, role.qos))
        self._link = lasting_link(self._session, role.port, self._on_event)

    async def run(self) -> None:
        await self._link.run()

    def _on_event(self, event: Event) -> None:
        match event:
            case Publish(topic=topic, payload=payload):
                self._count(topic, int(payload))
            case Connected(lost=True):
                self.sessions_lost += 1
            case Acknowledged(request=request) if isinstance(request.packet, Subscribe):
                self.ready.set()

    def _count(self, topic: str, number: int) -> None:
        counts = self.received.setdefault(topic, Counter())
        counts[number] += 1
        self.came += 1
        if counts[number] == 1:
            latest = self._latest.get(topic, 0)
            self.out_of_order += number < latest
            self._latest[topic] = max(number, latest)


class KillRun:
    """Carries out one plan in a folder, which then holds the broker's data and log."""

    def __init__(
        self,
        plan: KillPlan,
        folder: Path,
        *,
        settle_s_max: float = SETTLE_S_MAX,
        progress: Callable[[int, int], object] = lambda *_: None,
    ) -> None:
        self.plan = plan
        self._settle_s_max = settle_s_max
        self._disk = FailingDisk(folder) if plan.power else None
        data = folder if self._disk is None else self._disk.path
        self._broker = broker_process(plan.kind, folder, data, workers=plan.workers)
        self._progress = progress
        self._senders: list[_Sender] = []
        self._receivers: list[_Receiver] = []
        self._back_ms: list[float] = []

    async def run(self) -> KillVerdict:
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            if self._disk is not None:
                stack.enter_context(self._disk)
            await stack.enter_async_context(self._broker)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            port = self._broker.port
            roles = {qos: Role(f"receiver-{qos}", port, "0,0", f"kills/{qos}/#", None, qos) for qos in (1, 2)}
            self._receivers = [_Receiver(role) for role in roles.values()]
            tasks = [group.create_task(receiver.run()) for receiver in self._receivers]
            async with asyncio.timeout(START_S_MAX):
                for receiver in self._receivers:
                    await receiver.ready.wait()
            self._senders = [
                _Sender(Role(f"sender-{qos}-{number}", port, "0,0", f"kills/{qos}/{number}", None, qos))
                for qos in roles
                for number in range(SENDERS_PER_QOS)
            ]
            tasks += [group.create_task(sender.run()) for sender in self._senders]
            await self._kill_repeatedly()
            await self._settle()
            for task in tasks:
                task.cancel()
        return self._verdict(time.monotonic() - began)

    @property
    def _acknowledged(self) -> int:
        return sum(sender.count for sender in self._senders)

    async def _kill_repeatedly(self) -> None:
        plan = self.plan
        for kill in range(1, plan.kills + 1):
            await self._until_acknowledged(plan.messages * kill // (plan.kills + 1))
            killed = time.monotonic()
            if plan.workers > 1 and kill % BROKER_EVERY:
                await self._kill_a_worker(kill)
            else:
                self._kill()
                await self._broker.start()
            self._back_ms.append((time.monotonic() - killed) * 1000.0)
            self._progress(kill, plan.kills)
        await self._until_acknowledged(plan.messages)

    async def _kill_a_worker(self, kill: int) -> None:
        """One dies, and there are as many again."""
        workers = self._broker.children
        victim = workers[kill % len(workers)]
        os.kill(victim, signal.SIGKILL)
        while victim in self._broker.children or len(self._broker.children) < self.plan.workers:
            await asyncio.sleep(0.01)

    def _kill(self) -> None:
        """With the power, everything ends at one moment: the broker does nothing more when its disk is gone."""
        if self._disk is not None:
            self._broker.signal(signal.SIGSTOP)
            self._disk.fail()
        self._broker.kill()
        if self._disk is not None:
            self._disk.restore()

    async def _until_acknowledged(self, wanted: int) -> None:
        while self._acknowledged < wanted:
            await asyncio.sleep(0.01)

    async def _settle(self) -> None:
        """Until every event is acknowledged and all have come, or nothing has come for too long."""
        for sender in self._senders:
            sender.stop()
        deadline, came = time.monotonic() + self._settle_s_max, -1
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            if all(sender.finished for sender in self._senders) and not self._verdict(0.0).lost:
                break
            before, came = came, sum(receiver.came for receiver in self._receivers)
            if came > before:
                deadline = time.monotonic() + self._settle_s_max

    def _verdict(self, seconds: float) -> KillVerdict:
        verdict = KillVerdict(self.plan.kind, len(self._back_ms), self.plan.power, seconds=round(seconds, 1))
        received = {topic: counts for each in self._receivers for topic, counts in each.received.items()}
        for sender in self._senders:
            counts = received.get(sender.topic, Counter())
            verdict.acknowledged += sender.count
            verdict.lost += sum(flag and not counts[number] for number, flag in enumerate(sender.acknowledged))
            again = sum(count - 1 for count in counts.values())
            verdict.repeated += again if sender.qos == 1 else 0
            verdict.duplicated += again if sender.qos == 2 else 0
        verdict.out_of_order = sum(each.out_of_order for each in self._receivers)
        verdict.sessions_lost = sum(each.sessions_lost for each in self._receivers)
        if self._back_ms:
            verdict.back_ms_median = round(median(self._back_ms), 1)
            verdict.back_ms_max = round(max(self._back_ms), 1)
        return verdict


def broker_process(kind: Kind, folder: Path, data: Path, *, workers: int = 1) -> ChildProcess:
    """One that holds whatever waits, so that what is missing was lost and not dropped."""
    if kind.startswith("mosquitto"):
        saves = kind == "mosquitto-saving"
        return MosquittoProcess(kind, folder, durable=kind != "mosquitto", saves=saves, data=data)
    return BrokerProcess(
        Config(
            broker=BrokerSettings(name="killed", data_dir=str(data / "data"), workers=workers),
            listeners=(Listener(host=HOST, port=free_ports(1)[0]),),
            persistence=Persistence(free_bytes_min=0, sync=kind == "geomq"),
            metrics=Metrics(sys_interval_s=0),
            limits=Limits(queue_messages_max=WAITS_MAX),
        ),
        folder,
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geomq.testbed.kills", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--broker", choices=[*KINDS, "all"], default="geomq", help="which; the others are to compare with"
    )
    parser.add_argument("--kills", type=int, default=200, help="how often it is killed")
    parser.add_argument("--messages", type=int, default=1_000_000, help="how many events are acknowledged meanwhile")
    parser.add_argument("--workers", type=int, default=1, help="how many carry GeoMQ's clients, and are killed, too")
    parser.add_argument("--power", action="store_true", help="what it has not synced is lost each time")
    chosen = parser.parse_args(words)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every answer to a broker that was just killed
    plan = partial(KillPlan, kills=chosen.kills, messages=chosen.messages, power=chosen.power)
    workers = {"geomq": chosen.workers}
    verdicts = [_one(plan(kind, workers=workers.get(kind, 1))) for kind in KINDS if chosen.broker in (kind, "all")]
    return 0 if all(verdict.clean for verdict in verdicts if verdict.kind == "geomq") else 1


def _one(plan: KillPlan) -> KillVerdict:
    with tempfile.TemporaryDirectory(prefix="geomq-kills-") as folder:
        verdict = asyncio.run(stoppable(KillRun(plan, Path(folder), progress=_show).run()))
    print(json.dumps(verdict.as_dict()), flush=True)
    return verdict


def _show(done: int, kills: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{kills} kills", end="" if done < kills else "\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
