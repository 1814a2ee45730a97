"""A federation of real broker processes under fire, and clients that count on it all the while.

A run sets up senders and receivers at every broker, disturbs brokers and links at random for a while, heals
everything, lets the streams come to their end, and hands the records to the ledger. The same seed plans the same
disturbances; what the processes make of them is up to them.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import msgspec

from geomq.broker.config.settings import Auth, Config, Persistence
from geomq.broker.local_federation import CLOUD, Site, free_ports, local_configs
from geomq.errors import ProtocolError
from geomq.geo import Location, location_text
from geomq.mqtt.codec.packets import Connect, Will
from geomq.testbed.chaos_link import ChaosLink, Mischief
from geomq.testbed.ledger import (
    IDLE_BYTES_PER_S_MAX,
    Entry,
    Healed,
    Judgement,
    Quiet,
    Subscribed,
    judge,
    read_entries,
    write_entries,
)
from geomq.testbed.processes import BrokerProcess
from geomq.testbed.streams import Receiver, Role, Sender, die_repeatedly

SITES = (
    Site("berlin", Location(52.52, 13.405)),
    Site("frankfurt", Location(50.106732, 8.663124)),
    Site("paris", Location(48.877366, 2.359708)),
    Site("columbus", Location(39.961332, -82.999083)),
    Site("sydney", Location(-33.8688, 151.2093)),
)
"""The first three are so near each other that all their events matter to all of them."""
ACL = "topic readwrite stream/#\ntopic readwrite $geo/#\ntopic read secret/#\n"
ROUGH = Mischief(delay_ms=30.0, duplicate=0.1, reorder=0.1, truncate=0.01, cut=0.01)
PER_S = 20.0
START_S_MAX = 60.0
QUIET_S, QUIET_TRIES = 1.0, 10


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One run: which strategy, under which faults, for how long."""

    strategy: str
    seed: int = 0
    seconds: float = 20.0
    brokers: int = 5
    faults: tuple[str, ...] = ("kill", "pause", "cut", "cut and kill", "rough")
    options: Mapping[str, object] = field(default_factory=dict)
    broker: type[BrokerProcess] = BrokerProcess
    settle_s_max: float = 60.0
    """What is still missing this long after healing is lost; how long the rest took, the verdict tells."""


class FaultRun:
    """Carries out one plan in a folder, which then holds logs, data and `records.jsonl`."""

    def __init__(self, plan: FaultPlan, folder: Path) -> None:
        self.plan = plan
        self.done: list[str] = []
        self._folder = folder
        self._random = random.Random(plan.seed)
        self._entries: list[Entry] = []
        self._brokers: dict[str, BrokerProcess] = {}
        self._links: dict[tuple[str, str], ChaosLink] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._sites = SITES[: plan.brokers]

    async def run(self) -> Judgement:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            stack.push_async_callback(self._end_tasks)
            receivers, senders = self._clients()
            await self._admit(receivers)
            await asyncio.sleep(1.0)
            await self._admit(senders)
            self._begin([self._mortal(broker) for broker in self._brokers.values()])
            await self._disturb()
            await self._heal()
            for sender in senders:
                sender.stop()
            await self._settle(senders)
        path = self._folder / "records.jsonl"
        write_entries(path, self._entries)
        return judge(read_entries(path))

    # Setting up.

    async def _start(self, stack: AsyncExitStack) -> None:
        configs = local_configs(self._sites, self.plan.strategy, self.plan.options)
        (self._folder / "acl").write_text(ACL)
        for port, (name, config) in zip(free_ports(len(configs)), configs.items(), strict=True):
            durable = self._durable(config, port, keeps_port=name == CLOUD)
            self._brokers[name] = self.plan.broker(durable, self._folder)
        for near, far in combinations(sorted(site.name for site in self._sites), 2):
            await self._link(stack, near, far)
        for broker in self._brokers.values():
            stack.callback(broker.kill)
        await asyncio.gather(*(broker.start() for broker in self._brokers.values()))
        await asyncio.gather(*(self._linked(broker) for broker in self._brokers.values()))

    def _durable(self, config: Config, port: int, *, keeps_port: bool) -> Config:
        listener = config.listeners[0]
        if not keeps_port:
            listener = msgspec.structs.replace(listener, port=port)
        return msgspec.structs.replace(
            config,
            broker=msgspec.structs.replace(config.broker, data_dir=str(self._folder / config.broker.name)),
            listeners=(listener,),
            persistence=Persistence(free_bytes_min=0),
            auth=Auth(acl_file=str(self._folder / "acl")) if not keeps_port else config.auth,
            limits=msgspec.structs.replace(config.limits, queue_messages_max=100_000),
        )

    async def _link(self, stack: AsyncExitStack, near: str, far: str) -> None:
        """The broker whose name sorts first dials; lead it through a link of ours."""
        dialler, listener = self._brokers[near], self._brokers[far]
        port = listener.config.federation.port
        assert port is not None
        link = ChaosLink(port, seed=self._random.getrandbits(32))
        await stack.enter_async_context(link)
        self._links[near, far] = link
        peers = tuple(
            msgspec.structs.replace(peer, address=f"127.0.0.1:{link.port}") if peer.name == far else peer
            for peer in dialler.config.peers
        )
        dialler.config = msgspec.structs.replace(dialler.config, peers=peers)

    async def _linked(self, broker: BrokerProcess) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            with suppress(OSError):
                if await broker.is_linked():
                    return
            await asyncio.sleep(0.1)
        raise ProtocolError(f"broker {broker.name} is not connected to its peers")

    def _clients(self) -> tuple[list[Receiver], list[Sender]]:
        """At every site a receiver for each QoS and a sender for each: some near each other, some with fences."""
        receivers: list[Receiver] = []
        senders: list[Sender] = []
        for site in self._sites:
            at, port = location_text(site.location), self._brokers[site.name].port
            near = f"geo:{site.location.lat},{site.location.lon};u=1500000"
            for qos, fence in ((1, None), (2, near)):
                wish = Role(f"r{qos}-{site.name}", port, at, f"stream/q{qos}/#", fence, qos)
                receivers.append(Receiver(wish, self._entries.append))
                self._entries.append(Subscribed(wish.name, wish.topic, wish.at, wish.fence, wish.qos))
                role = Role(
                    f"s{qos}-{site.name}", port, at, f"stream/q{qos}/{site.name}", near if qos == 1 else None, qos
                )
                senders.append(Sender(role, self._entries.append, per_s=PER_S))
        watcher = Role(
            "watcher", self._brokers[SITES[0].name].port, location_text(SITES[0].location), "secret/#", None, 1
        )
        receivers.append(Receiver(watcher, self._entries.append))
        return receivers, senders

    async def _admit(self, clients: Sequence[Receiver | Sender]) -> None:
        self._begin(client.run() for client in clients)
        async with asyncio.timeout(START_S_MAX):
            for client in clients:
                await client.ready.wait()

    async def _mortal(self, broker: BrokerProcess) -> None:
        """A client that keeps dying, with a last will it has no right to."""
        if broker.name == CLOUD:
            return
        will = Will(f"secret/{broker.name}", b"a forbidden will", 1)
        await die_repeatedly(Connect(f"mortal-{broker.name}", will=will), broker.port)

    def _begin(self, jobs: Iterable[Coroutine[None, None, None]]) -> None:
        self._tasks.extend(asyncio.create_task(job) for job in jobs)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Disturbing.

    async def _disturb(self) -> None:
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "pause": self._pause,
            "cut": self._cut,
            "cut and kill": self._cut_and_kill,
            "rough": self._rough,
        }
        until, bag = time.monotonic() + self.plan.seconds, list[str]()
        while time.monotonic() < until:
            bag = bag or self._random.sample(self.plan.faults, k=len(self.plan.faults))
            await acts[bag.pop()]()
            await asyncio.sleep(self._random.uniform(0.2, 1.0))

    def _note(self, what: str) -> None:
        self.done.append(what)

    async def _kill(self) -> None:
        broker = self._random.choice(list(self._brokers.values()))
        self._note(f"kill {broker.name}")
        broker.kill()
        await asyncio.sleep(self._random.uniform(0.0, 1.5))
        await broker.start()

    async def _pause(self) -> None:
        broker = self._random.choice(list(self._brokers.values()))
        self._note(f"pause {broker.name}")
        broker.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._random.choice([0.5, 1.5, 3.0]))
        finally:
            broker.signal(signal.SIGCONT)

    async def _cut(self) -> None:
        ends = self._random.choice(list(self._links))
        self._note(f"cut {'-'.join(ends)}")
        self._links[ends].cut()
        await asyncio.sleep(self._random.uniform(0.2, 2.0))
        self._links[ends].heal()

    async def _cut_and_kill(self) -> None:
        """A broker dies while something waits in it for a peer it cannot reach."""
        ends = self._random.choice(list(self._links))
        victim = self._brokers[self._random.choice(ends)]
        self._note(f"cut {'-'.join(ends)} and kill {victim.name}")
        self._links[ends].cut()
        await asyncio.sleep(1.0)
        victim.kill()
        self._links[ends].heal()
        await victim.start()

    async def _rough(self) -> None:
        chosen = self._random.sample(list(self._links), k=min(4, len(self._links)))
        self._note(f"rough {', '.join('-'.join(ends) for ends in chosen)}")
        for ends in chosen:
            self._links[ends].mischief = ROUGH
        await asyncio.sleep(self._random.uniform(1.0, 2.0))
        for ends in chosen:
            self._links[ends].heal()

    async def _heal(self) -> None:
        for link in self._links.values():
            link.heal()
        self._entries.append(Healed(time.time() * 1000.0))

    # Coming to an end.

    async def _settle(self, senders: Sequence[Sender]) -> None:
        """Until every event is acknowledged and everything expected has come, or for too long."""
        deadline = time.monotonic() + self.plan.settle_s_max
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            if all(sender.finished for sender in senders) and not judge(self._entries).lost:
                break
        await asyncio.sleep(QUIET_S)
        self._entries.append(Quiet(await self._idle_bytes_per_s()))

    async def _idle_bytes_per_s(self) -> float:
        """On the busiest link, once all are idle, or when they had time enough for it."""
        per_s = 0.0
        for _ in range(QUIET_TRIES):
            before = {ends: link.bytes for ends, link in self._links.items()}
            await asyncio.sleep(QUIET_S)
            per_s = max(link.bytes - before[ends] for ends, link in self._links.items()) / QUIET_S
            if per_s <= IDLE_BYTES_PER_S_MAX:
                break
        return per_s
