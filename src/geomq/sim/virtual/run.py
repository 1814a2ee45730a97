"""One run from its seed to its verdict.

    outcome = run(7)
    outcome.violations, outcome.digest, outcome.transcript

The same seed gives the same transcript, whatever else this process did before.
"""

import asyncio
import gc
import hashlib
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from geomq.errors import ConfigError
from geomq.routing.federation.changes import SetAreas, SetStrategy
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.virtual import habits
from geomq.sim.virtual.census import disagreement, leftovers, twins
from geomq.sim.virtual.device import Device
from geomq.sim.virtual.faults import Faults
from geomq.sim.virtual.judge import judge
from geomq.sim.virtual.ledger import Ledger, Violation
from geomq.sim.virtual.loop import START_S, Stuck, VirtualLoop, make_loop
from geomq.sim.virtual.machine import Machine
from geomq.sim.virtual.network import Network
from geomq.sim.virtual.processes import PROCESS
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Place, Wish
from geomq.sim.virtual.scenario import (
    CLOSING_S,
    CLOUD,
    HEALED_S,
    PEER_PORT,
    SECONDS,
    TROUBLE_S,
    Options,
    Scenario,
)

LINKED_S_MAX = 30.0
ARRIVAL_S = 1.0
GOODBYE_S = 4.0
PATIENCE = 20
"""How often it is looked whether anything is left over: messages between brokers may just be under way."""


@dataclass(slots=True)
class Outcome:
    """What one seed came to."""

    seed: int
    what: str
    violations: list[Violation]
    digest: str
    transcript: list[str] = field(repr=False)
    deliveries: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0


class World:
    """Everything of one run."""

    def __init__(self, scenario: Scenario, loop: VirtualLoop) -> None:
        self.scenario = scenario
        self.loop = loop
        self.rng = random.Random(f"world {scenario.seed}")
        self.transcript: list[str] = []
        self.digest = hashlib.sha256()
        """Of the transcript without what brokers log."""
        self.ledger = Ledger(loop.time, self.note, refuses=scenario.refuses, reroutes=scenario.reroutes)
        self.machines = [Machine(loop, scenario.config(name), scenario.seed, self.note) for name in scenario.machines]
        self.devices: dict[str, Device] = {}
        self.closing = False
        self._began_s = loop.now

    def note(self, text: str) -> None:
        line = f"{self.loop.now - START_S:10.4f} {text}"
        self.transcript.append(line)
        self.digest.update(line.encode())

    @property
    def elapsed_s(self) -> float:
        """Since all brokers were linked."""
        return self.loop.now - self._began_s

    async def until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.elapsed_s))

    def device(self, profile: Profile, home: str, place: Place | None) -> Device:
        """A new client."""
        self.ledger.client(profile.name, kept=profile.kept, expiry_s=profile.expiry_s)
        rng = random.Random(f"{profile.name} {self.scenario.seed}")
        made = Device(profile, self.loop, self.ledger, rng, self.scenario.hosts, home, place)
        self.devices[profile.name] = made
        return made

    def change_federation(self, rng: random.Random) -> None:
        """Ask a broker that is there for another strategy, or for other areas."""
        machine = rng.choice(self.machines)
        names = [name for name in STRATEGIES if name not in ("single", "broadcast_groups")]
        broker = machine.broker
        if not machine.linked or broker is None:
            return
        strategy, areas = rng.choice(names), rng.choice([SetAreas("nearest"), SetAreas("grid", 10)])
        change, wanted = rng.choice([(SetStrategy(strategy, {}), strategy), (areas, f"{areas.kind} areas")])
        try:
            machine.do(lambda: broker.membership and broker.membership.change(change))
        except ConfigError as error:
            self.note(f"{machine.name} does not change to {wanted}: {error}")
        else:
            self.note(f"{machine.name} changes to {wanted}")

    # The parts of a run.

    async def play(self) -> None:
        scenario, loop = self.scenario, self.loop
        faults = Faults(loop, self.machines, self.devices.keys(), scenario.seed, self.note)
        keeper = loop.create_task(faults.keep_running())
        for machine in self.machines:
            machine.start()
        await self._link()
        self._began_s = loop.now
        tasks = self._set_out()
        await self.until(TROUBLE_S)
        if scenario.mode != "calm":
            self.ledger.trouble_begins()
            faults.begin(scenario.troubles)
        await self.until(HEALED_S)
        if scenario.mode == "heals":
            faults.heal()
            self.ledger.trouble_ends()
        await self.until(CLOSING_S)
        if scenario.mode != "never heals":
            await self._close()
        for task in (keeper, *tasks):
            task.cancel()

    async def _link(self) -> None:
        while not all(machine.linked for machine in self.machines):
            await asyncio.sleep(0.1)
            if self.elapsed_s > LINKED_S_MAX:
                raise Stuck("the brokers did not find each other")

    def _set_out(self) -> list[asyncio.Task[None]]:
        scenario, loop = self.scenario, self.loop
        publishers, standing = habits.make_publishers(self), habits.make_standing(self)
        for device in (*publishers, *standing):
            loop.call_later(self.rng.uniform(0, ARRIVAL_S), device.come)
        tasks = []
        for number, stream in enumerate(scenario.streams(len(publishers))):
            rng = random.Random(f"stream {number} {scenario.seed}")
            tasks.append(loop.create_task(habits.publish(self, publishers[stream.publisher], stream, rng)))
        tasks += [
            loop.create_task(habits.HABITS[name](self, random.Random(f"{name} {scenario.seed}")))
            for name in sorted(scenario.habits & habits.HABITS.keys())
        ]
        return tasks

    async def _close(self) -> None:
        """All events have had their time: look for what nobody answered, then end all sessions."""
        self.closing = True
        await asyncio.sleep(1.0)
        readers = self._read_retained()
        await asyncio.sleep(1.0)
        for device in self.devices.values():
            if device.unanswered and device.link is not None:
                self.ledger.fault(f"{device.name} has {device.unanswered} publishes that nobody answered", "unanswered")
        self._judge_retained(readers)
        self.ledger.violations += twins(machine.broker for machine in self.machines if machine.linked)
        self.note("all sessions end")
        for device in self.devices.values():
            device.end_session()
        await asyncio.sleep(GOODBYE_S)
        for _ in range(PATIENCE):
            left = self._left_over()
            if not left:
                return
            await asyncio.sleep(0.1)
        self.ledger.violations += left

    def _left_over(self) -> list[Violation]:
        retained = len({event.topic for event in self.ledger.events.values() if event.retain})
        found: list[Violation] = []
        for machine in self.machines:
            served = len(self.scenario.names) if machine.name == CLOUD else 0
            if machine.linked and machine.broker is not None:
                found += leftovers(machine.name, machine.broker, retained, served)
            else:
                found.append(Violation("not converged", f"{machine.name} does not run, or has not found its peers"))
        there = [machine.broker for machine in self.machines if machine.linked and machine.name != CLOUD]
        return [*found, *disagreement(there)]

    # Retained events.

    def _read_retained(self) -> list[Device]:
        if "retain" not in self.scenario.habits:
            return []
        readers = []
        for name in self.scenario.names:
            reader = self.device(Profile(f"reader-{name}", expiry_s=0), name, None)
            reader.subscribe(Wish("ret/#", 1))
            reader.come()
            readers.append(reader)
        return readers

    def _judge_retained(self, readers: list[Device]) -> None:
        """Everybody finds the last word that was acknowledged, or one after it."""
        topics: dict[str, list[str | None]] = {}
        for event in self.ledger.events.values():
            if event.retain and event.sends and not event.declined:
                possible = topics.setdefault(event.topic, [None])
                if event.acknowledged_s is not None:
                    possible.clear()
                possible.append(None if event.deletes else event.name)
        for reader in readers:
            receipts = self.ledger.clients[reader.name].receipts
            for topic, allowed in topics.items():
                found = [receipt.event for receipt in receipts if receipt.topic == topic and receipt.retain]
                got: list[str | None] = [*found] or [None]
                if len(got) != 1 or got[0] not in allowed:
                    self.ledger.fault(f"{reader.name} finds {got} on {topic}, not {allowed}", "retained")


def run(seed: int, options: Options = Options(), *, log: bool = False) -> Outcome:  # noqa: B008
    """Play one seed and judge it."""
    began = time.process_time()
    scenario = Scenario(seed, options)
    names = {host: name for name, host in scenario.hosts.items()}
    loop = make_loop(Network(seed, names, frozenset({PEER_PORT})))
    world = World(scenario, loop)
    world.note(f"seed {seed}: {scenario.describe()}")
    with _undisturbed(world, log=log):
        try:
            loop.run_until_complete(asyncio.wait_for(world.play(), SECONDS + LINKED_S_MAX))
        except (Stuck, TimeoutError) as error:
            world.ledger.fault(str(error) or "the run did not end", "stuck")
    for text in loop.trouble:
        world.ledger.fault(text, "exception")
    violations = judge(world.ledger, healed=scenario.mode != "never heals")
    deliveries = sum(len(client.receipts) for client in world.ledger.clients.values())
    return Outcome(
        seed,
        scenario.describe(),
        violations,
        world.digest.hexdigest()[:16],
        world.transcript,
        deliveries,
        loop.now - START_S,
        time.process_time() - began,
    )


class _Log(logging.Handler):
    """Errors that brokers log are faults of the run; on demand everything they log is part of the transcript."""

    def __init__(self, world: World, *, everything: bool) -> None:
        super().__init__(logging.DEBUG if everything else logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name}: {record.getMessage()}"
        if record.levelno >= logging.ERROR and "store failed" not in text:
            error = record.exc_info[1] if record.exc_info else ""
            self._world.ledger.fault(f"{text} {error!r}", "logged")
        elif self.level == logging.DEBUG:
            process = PROCESS.get()
            who = "" if process is None else process.name
            about = getattr(record, "peer", "") or getattr(record, "reason", "")
            self._world.transcript.append(f"{self._world.loop.now - START_S:10.4f}     [{who}] {text} {about}".rstrip())


@contextmanager
def _undisturbed(world: World, *, log: bool) -> Iterator[None]:
    """Nothing outside the run has a say: neither the garbage collector nor those who listen to logs."""
    logger, handler = logging.getLogger("geomq"), _Log(world, everything=log)
    level, propagate = logger.level, logger.propagate
    collecting = gc.isenabled()
    gc.disable()
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG if log else logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        if collecting:
            gc.enable()
