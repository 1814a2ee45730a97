"""What dice do to the live scenarios: few fences meet two areas, and nearly all messages come of those.

The published run is one roll of the dice, of which Table II tells what came up. So many seeds are looked at: how usual
is what came up, and what is sent with those seeds that come up alike? That is what a live run with one of them is
held against.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from geomq.reproduction.live.table_ii import TABLE_II, Characteristics, Told, characteristics, told
from geomq.reproduction.tables import table
from geomq.workload.evaluation.evaluate import evaluate_locally
from geomq.workload.generation.presets import Request, build, describe
from geomq.workload.model import generate

ALIKE = 0.025
MESSAGES = {
    "open": {"disgb_events": 432_058, "disgb_subscriptions": 7_604},
    "hiking": {"disgb_events": 623, "disgb_subscriptions": 2_323},
    "context": {"disgb_events": 222, "disgb_subscriptions": 143_050},
}
"""The published messages between brokers."""


class Roll(NamedTuple):
    """A seed's row of Table II; of one like the published, what is told, events sent and matched events sent on."""

    seed: int
    row: Characteristics
    told: Told | None = None
    events: int = 0
    deliveries: int = 0

    def messages(self) -> dict[str, int]:
        """As the paper counts: location updates, subscription updates and events."""
        assert self.told is not None
        updates = self.told.locations + self.told.subscriptions
        return {"disgb_events": self.events, "disgb_subscriptions": updates + self.deliveries}


def look_at(scenario: str, seeds: Iterable[int], say: Callable[[str], None] = lambda _: None) -> list[Roll]:
    """Roll the dice of a scenario with each seed."""
    rolls = []
    for seed in seeds:
        request = Request(scenario, seed=seed)
        world, spec = build(request)
        workload = generate(world, spec, seed)
        row = characteristics(world, workload.actions)
        say(f"{scenario}, seed {seed}")
        if not row.is_like(TABLE_II[scenario], ALIKE):
            rolls.append(Roll(seed, row))
            continue
        sent = evaluate_locally(describe(request, world, spec, 0), world, spec, seed, False).strategies
        events, deliveries = sent["disgb_events"].messages["event"], sent["disgb_subscriptions"].messages["delivery"]
        rolls.append(Roll(seed, row, told(world, workload), events, deliveries))
    return rolls


def markdown(rolls: dict[str, list[Roll]]) -> str:
    """How usual the published fences are, and what seeds like the published run send."""
    fences, sent = [], []
    for scenario, found in rolls.items():
        for name in ("subscription_overlaps", "event_overlaps"):
            published = getattr(TABLE_II[scenario], name)
            if published is not None:
                numbers = [getattr(roll.row, name) for roll in found]
                fewer, what = sum(number <= published for number in numbers), name.split("_")[0]
                fences.append((f"{scenario}, {what}", f"{published:,}", len(found), _spread(numbers), fewer))
        alike = [roll for roll in found if roll.told is not None]
        seeds = ", ".join(str(roll.seed) for roll in alike) or "none"
        for strategy, number in MESSAGES[scenario].items():
            messages = _spread([roll.messages()[strategy] for roll in alike])
            sent.append((f"{scenario}, {strategy}", f"{number:,}", seeds, messages))
    first = ("scenario, fences that meet two areas", "published", "seeds", "mean ± deviation", "as few or fewer")
    second = ("scenario, strategy", "published", f"seeds within {ALIKE:.1%} of Table II", "they send")
    return f"{table(first, fences)}\n{table(second, sent)}"


def _spread(numbers: Sequence[int]) -> str:
    return f"{np.mean(numbers):,.0f} ± {np.std(numbers):,.0f}" if numbers else "-"
