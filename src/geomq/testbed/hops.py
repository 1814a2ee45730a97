"""Clients with kept sessions that hop between three broker processes, which are killed all the while.

Owns one such run: who hops and who publishes, when which broker is killed, and what the run must show. Receivers of QoS
1 and 2, of MQTT 3.1.1 and 5, want everything that publishers of QoS 1 and 2 send. The rest is as in `faults.py`.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import msgspec

from geomq.broker.config.settings import Config
from geomq.geo import location_text
from geomq.mqtt.codec.types import V5, V311
from geomq.testbed.faults import FaultPlan, FaultRun
from geomq.testbed.ledger import Judgement, Subscribed
from geomq.testbed.processes import BrokerProcess
from geomq.testbed.streams import Hopper, Receiver, Role, Sender

Missing = Literal["refuse", "start"]

KILLS_PER_S = 0.4
DOWN_S = (0.0, 1.0)
PER_S = 10.0
ALIKE = 2
"""Hoppers of one QoS and version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HopPlan(FaultPlan):
    """One run: what a broker does with a client whose session it cannot find."""

    session_missing: Missing
    brokers: int = 3
    faults: tuple[str, ...] = ("kill",)


class HopRun(FaultRun):
    """Carries out one plan; `done` says which brokers were killed, `hops` how often a client was let in."""

    def __init__(self, plan: HopPlan, folder: Path) -> None:
        super().__init__(plan, folder)
        self._missing: Missing = plan.session_missing
        self._hoppers: list[Hopper] = []
        self._away: dict[str, asyncio.Task[None]] = {}

    @property
    def hops(self) -> int:
        return sum(hopper.hops for hopper in self._hoppers)

    def _durable(self, config: Config, port: int, *, keeps_port: bool) -> Config:
        config = super()._durable(config, port, keeps_port=keeps_port)
        federation = msgspec.structs.replace(config.federation, session_missing=self._missing)
        return msgspec.structs.replace(config, federation=federation)

    def _clients(self) -> tuple[list[Receiver], list[Sender]]:
        """At every site a sender for each QoS, with a topic of its own; the hoppers want all of it."""
        ports = {site.name: self._brokers[site.name].port for site in self._sites}
        senders = []
        for site, qos in product(self._sites, (1, 2)):
            at, topic = location_text(site.location), f"stream/hop/q{qos}/{site.name}"
            role = Role(f"s{qos}-{site.name}", ports[site.name], at, topic, None, qos)
            senders.append(Sender(role, self._entries.append, per_s=PER_S))
        for qos, version, number in product((1, 2), (V311, V5), range(ALIKE)):
            first = self._sites[len(self._hoppers) % len(self._sites)]
            role = Role(f"h{qos}-v{version}-{number}", 0, location_text(first.location), "stream/hop/#", None, qos)
            dice = random.Random(self._random.getrandbits(32))
            self._hoppers.append(
                Hopper(role, self._entries.append, ports=ports, dice=dice, version=version, first=first.name)
            )
            self._entries.append(Subscribed(role.name, role.topic, role.at, role.fence, role.qos))
        return list(self._hoppers), senders

    async def _disturb(self) -> None:
        """Kill a broker at every tick, even if the one before is not back yet; but never the last that runs."""
        begins, tick = time.monotonic(), 0
        while time.monotonic() < begins + self.plan.seconds:
            running = [broker for broker in self._brokers.values() if broker.name not in self._away]
            if len(running) > 1 and "kill" in self.plan.faults:
                broker = self._random.choice(running)
                self._note(f"kill {broker.name}")
                self._away[broker.name] = asyncio.create_task(self._kill_and_restart(broker))
            tick += 1
            await asyncio.sleep(max(0.0, begins + tick / KILLS_PER_S - time.monotonic()))

    async def _kill_and_restart(self, broker: BrokerProcess) -> None:
        broker.kill()
        await asyncio.sleep(self._random.uniform(*DOWN_S))
        await broker.start()
        del self._away[broker.name]

    async def _heal(self) -> None:
        await asyncio.gather(*self._away.values())
        await super()._heal()
        for hopper in self._hoppers:
            hopper.stay()


def passes(plan: HopPlan, verdict: Judgement) -> bool:
    """What a run must show. That events come again with a new session is in the nature of `start`."""
    return verdict.clean and not verdict.out_of_order and (plan.session_missing == "start" or not verdict.started_anew)
