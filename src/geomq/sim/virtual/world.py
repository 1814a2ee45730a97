"""Everything there is in one run: its machines, clients, clock and records. What happens is decided elsewhere."""

import asyncio
import hashlib
import random

from geomq.errors import ConfigError
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.changes import SetAreas, SetStrategy
from geomq.routing.strategies.groups.membership import GroupMembership
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.virtual.device import Device
from geomq.sim.virtual.ledger import Ledger
from geomq.sim.virtual.loop import START_S, VirtualLoop
from geomq.sim.virtual.machine import Machine
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Place
from geomq.sim.virtual.scenario import Scenario

WATCH_S = 0.1


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
        """Whether clients are to publish nothing more."""
        self.began_s = loop.now
        """When all brokers were linked."""

    def note(self, text: str) -> None:
        line = f"{self.loop.now - START_S:10.4f} {text}"
        self.transcript.append(line)
        self.digest.update(line.encode())

    @property
    def elapsed_s(self) -> float:
        """Since `began_s`."""
        return self.loop.now - self.began_s

    async def watch_groups(self) -> None:
        """Tell the ledger when broadcast groups form anew: while they do, events may take two ways."""
        before, looked_s = self._groups(), self.loop.now
        while True:
            await asyncio.sleep(WATCH_S)
            groups = self._groups()
            if groups != before:
                self.ledger.groups_changed(looked_s)
            before, looked_s = groups, self.loop.now

    def _groups(self) -> list[BrokerId | None]:
        """The leader of each broker's group, as far as it is linked."""
        found: list[BrokerId | None] = []
        for machine in self.machines:
            strategy = machine.broker.core.node.strategy if machine.linked and machine.broker else None
            found.append(strategy.seat.leader if isinstance(strategy, GroupMembership) else None)
        return found

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
            self.ledger.federation_changes()
            self.note(f"{machine.name} changes to {wanted}")
