"""One run from its seed to its verdict.

    outcome = run(7)
    outcome.violations, outcome.digest, outcome.transcript

The same seed gives the same transcript, whatever else this process did before.
"""

import asyncio
import gc
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from geomq.sim.virtual import habits
from geomq.sim.virtual.census import disagreement, leftovers, twins
from geomq.sim.virtual.device import Device
from geomq.sim.virtual.faults import Faults
from geomq.sim.virtual.judge import judge
from geomq.sim.virtual.ledger import Violation
from geomq.sim.virtual.loop import START_S, Stuck, make_loop
from geomq.sim.virtual.network import Network
from geomq.sim.virtual.processes import PROCESS
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Wish
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
from geomq.sim.virtual.world import World

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


class Play:
    """The parts of a run, one after the other."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def play(self) -> None:
        world, scenario, loop = self._world, self._world.scenario, self._world.loop
        faults = Faults(loop, world.machines, world.devices.keys(), scenario.seed, world.note)
        keeper = loop.create_task(faults.keep_running())
        for machine in world.machines:
            machine.start()
        await self._link()
        world.began_s = loop.now
        tasks = self._set_out()
        await world.until(TROUBLE_S)
        if scenario.mode != "calm":
            world.ledger.trouble_begins()
            faults.begin(scenario.troubles)
        await world.until(HEALED_S)
        if scenario.mode == "heals":
            faults.heal()
            world.ledger.trouble_ends()
        await world.until(CLOSING_S)
        if scenario.mode != "never heals":
            await self._close()
        for task in (keeper, *tasks):
            task.cancel()

    async def _link(self) -> None:
        world = self._world
        while not all(machine.linked for machine in world.machines):
            await asyncio.sleep(0.1)
            if world.elapsed_s > LINKED_S_MAX:
                raise Stuck("the brokers did not find each other")

    def _set_out(self) -> list[asyncio.Task[None]]:
        world, scenario, loop = self._world, self._world.scenario, self._world.loop
        publishers, standing = habits.make_publishers(world), habits.make_standing(world)
        for device in (*publishers, *standing):
            loop.call_later(world.rng.uniform(0, ARRIVAL_S), device.come)
        tasks = [loop.create_task(world.watch_groups())] if scenario.with_cloud else []
        for number, stream in enumerate(scenario.streams(len(publishers))):
            rng = random.Random(f"stream {number} {scenario.seed}")
            tasks.append(loop.create_task(habits.publish(world, publishers[stream.publisher], stream, rng)))
        tasks += [
            loop.create_task(habits.HABITS[name](world, random.Random(f"{name} {scenario.seed}")))
            for name in sorted(scenario.habits & habits.HABITS.keys())
        ]
        return tasks

    async def _close(self) -> None:
        """All events have had their time: look for what nobody answered, then end all sessions."""
        world = self._world
        world.closing = True
        await asyncio.sleep(1.0)
        readers = self._read_retained()
        await asyncio.sleep(1.0)
        for device in world.devices.values():
            if device.unanswered and device.link is not None:
                text = f"{device.name} has {device.unanswered} publishes that nobody answered"
                world.ledger.fault(text, "unanswered")
        self._judge_retained(readers)
        world.ledger.violations += twins(machine.broker for machine in world.machines if machine.linked)
        world.note("all sessions end")
        for device in world.devices.values():
            device.end_session()
        await asyncio.sleep(GOODBYE_S)
        for _ in range(PATIENCE):
            left = self._left_over()
            if not left:
                return
            await asyncio.sleep(0.1)
        world.ledger.violations += left

    def _left_over(self) -> list[Violation]:
        world = self._world
        retained = len({event.topic for event in world.ledger.events.values() if event.retain})
        found: list[Violation] = []
        for machine in world.machines:
            served = len(world.scenario.names) if machine.name == CLOUD else 0
            if machine.linked and machine.broker is not None:
                found += leftovers(machine.name, machine.broker, retained, served)
            else:
                found.append(Violation("not converged", f"{machine.name} does not run, or has not found its peers"))
        there = [machine.broker for machine in world.machines if machine.linked and machine.name != CLOUD]
        return [*found, *disagreement(there)]

    # Retained events.

    def _read_retained(self) -> list[Device]:
        world = self._world
        if "retain" not in world.scenario.habits:
            return []
        readers = []
        for name in world.scenario.names:
            reader = world.device(Profile(f"reader-{name}", expiry_s=0), name, None)
            reader.subscribe(Wish("ret/#", 1))
            reader.come()
            readers.append(reader)
        return readers

    def _judge_retained(self, readers: list[Device]) -> None:
        """Everybody finds the last word that was acknowledged, or one after it."""
        world = self._world
        topics: dict[str, list[str | None]] = {}
        for event in world.ledger.events.values():
            if event.retain and event.sends and not event.declined:
                possible = topics.setdefault(event.topic, [None])
                if event.acknowledged_s is not None:
                    possible.clear()
                possible.append(None if event.deletes else event.name)
        for reader in readers:
            receipts = world.ledger.clients[reader.name].receipts
            for topic, allowed in topics.items():
                found = [receipt.event for receipt in receipts if receipt.topic == topic and receipt.retain]
                got: list[str | None] = [*found] or [None]
                if len(got) != 1 or got[0] not in allowed:
                    world.ledger.fault(f"{reader.name} finds {got} on {topic}, not {allowed}", "retained")


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
            loop.run_until_complete(asyncio.wait_for(Play(world).play(), SECONDS + LINKED_S_MAX))
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


_OF_FAULTS = ("store failed", "a worker ended")
"""What brokers log when a fault of the run strikes them."""


class _Log(logging.Handler):
    """Errors that brokers log are faults of the run; on demand everything they log is part of the transcript."""

    def __init__(self, world: World, *, everything: bool) -> None:
        super().__init__(logging.DEBUG if everything else logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name}: {record.getMessage()}"
        if record.levelno >= logging.ERROR and not any(words in text for words in _OF_FAULTS):
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
