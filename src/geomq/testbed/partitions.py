"""A federation of broker processes that is split in two and joined again, so many times.

Owns one such run: who is cut off from whom, and for how long. Clients, streams and the verdict are as in `faults.py`;
every join counts as healed, so that the verdict's `converged_s` is the longest that anything took after one of them.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from geomq.testbed.faults import FaultPlan, FaultRun
from geomq.testbed.ledger import Healed

APART_S = (0.5, 2.5)
TOGETHER_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(FaultPlan):
    """One run; brokers keep running."""

    cycles: int = 100


class PartitionRun(FaultRun):
    """Carries out one plan; `done` says who was on which side, `linked_s_max` how long links took to be back."""

    def __init__(self, plan: PartitionPlan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.linked_s_max = 0.0
        self._cycles = plan.cycles

    async def _disturb(self) -> None:
        names = sorted(site.name for site in self._sites)
        for _ in range(self._cycles):
            side = set(self._random.sample(names, k=self._random.randint(1, len(names) - 1)))
            self._note(f"split {'+'.join(sorted(side))}")
            between = [link for ends, link in self._links.items() if len(side.intersection(ends)) == 1]
            for link in between:
                link.cut()
            await asyncio.sleep(self._random.uniform(*APART_S))
            for link in between:
                link.heal()
            self._entries.append(Healed(time.time() * 1000.0))
            await self._wait_linked()

    async def _wait_linked(self) -> None:
        began = time.monotonic()
        await asyncio.gather(*(self._linked(broker) for broker in self._brokers.values()))
        self.linked_s_max = max(self.linked_s_max, time.monotonic() - began)
        await asyncio.sleep(TOGETHER_S)
