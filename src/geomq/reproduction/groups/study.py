"""The runs of a formation study: what each is given and what it finds, one row each.

Owns the three kinds of run. `form`: from every broker alone to stable groups. `change`: brokers come, go or slow down
after that, and the groups re-form. `watch`: probes are noisy and the groups never rest; how often brokers change
their leader is counted over a fixed number of ticks. A run depends on its fields alone.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from geomq.errors import UsageError
from geomq.reproduction.groups.cities import LISTS, broker_cities
from geomq.reproduction.groups.formation import Counts, Formation
from geomq.reproduction.groups.latency import space_of

StudyPart = Literal["form", "change", "watch"]
THRESHOLDS_MS = (*range(10, 101, 10), *range(150, 401, 50))
BROKERS = tuple(range(1200, 12001, 1200))
WARM_TICKS = 100
WATCH_TICKS = 200
CHANGES = {
    "arrive": "brokers come",
    "depart": "brokers vanish",
    "depart leaders": "leaders vanish",
    "slow": "the access of brokers takes half the threshold longer",
}


@dataclass(frozen=True, slots=True)
class FormationRun:
    """What a run is given."""

    kind: StudyPart
    brokers: int
    join_ms: float
    cities: str = "regions"
    leave_ms: float = 0.0
    """0 for the same as `join_ms`."""
    seed: int = 1
    noise: float = 0.0
    probes: int = 1
    change: str = ""
    share: float = 0.0

    @property
    def cost(self) -> float:
        """About how long it takes, to begin with the longest."""
        per_tick = 20.0 * self.probes if self.noise else 1.0
        return float(self.brokers) ** 2 * per_tick


@dataclass(frozen=True, slots=True)
class FormationRow:
    """What a run was given and found; counts of a change or a watch are without the formation before it."""

    kind: str
    brokers: int
    join_ms: float
    cities: str
    leave_ms: float
    seed: int
    noise: float
    probes: int
    change: str
    share: float
    changed: int
    groups: int
    ticks: int
    leader_joins: int
    member_joins: int
    notifications: int
    splits: int
    departures: int
    requests: int
    measurements: int
    messages: int
    stable_measurements: int
    first_ticks: int
    first_messages: int

    @property
    def moves(self) -> int:
        """How often a broker got another leader."""
        return self.leader_joins + self.member_joins + self.splits + self.departures


def run_formation(run: FormationRun) -> FormationRow:
    """Carry out one run."""
    arriving = _changed(run) if run.change == "arrive" else 0
    cities = broker_cities(run.cities, run.brokers + arriving, seed=run.seed)
    space = space_of(cities.lat, cities.lon, noise=run.noise, probes=run.probes, seed=run.seed)
    leave_ms = run.leave_ms or run.join_ms
    formation = Formation(space, cities.population, run.join_ms, leave_ms=leave_ms, seed=run.seed)
    dice = np.random.Generator(np.random.Philox(key=[run.seed, 0xC4A26E]))
    newcomers = dice.permutation(len(cities))[:arriving]
    formation.depart(newcomers)
    if run.kind == "watch":
        first, counts = _watch(formation)
        return _row(run, formation, counts, first, changed=0)
    first = formation.run()
    if run.kind == "form":
        return _row(run, formation, first, first, changed=0)
    if run.change == "arrive":
        formation.arrive(newcomers)
    else:
        _disturb(formation, run, dice)
    return _row(run, formation, formation.run(), first, changed=_changed(run))


def _changed(run: FormationRun) -> int:
    return max(1, round(run.share * run.brokers))


def _disturb(formation: Formation, run: FormationRun, dice: np.random.Generator) -> None:
    if run.change == "depart":
        formation.depart(dice.permutation(run.brokers)[: _changed(run)])
    elif run.change == "depart leaders":
        leaders = formation.leaders
        formation.depart(dice.permutation(leaders)[: max(1, round(run.share * len(leaders)))])
    elif run.change == "slow":
        formation.slow(dice.permutation(run.brokers)[: _changed(run)], run.join_ms / 2)
    else:
        raise UsageError(f"no change {run.change!r}; choose one of {', '.join(CHANGES)}")


def _watch(formation: Formation) -> tuple[Counts, Counts]:
    for _ in range(WARM_TICKS):
        formation.tick()
    first = Counts(**asdict(formation.counts))
    for _ in range(WATCH_TICKS):
        formation.tick()
    return first, formation.counts.since(first)


def _row(run: FormationRun, formation: Formation, counts: Counts, first: Counts, *, changed: int) -> FormationRow:
    if run.change == "depart leaders":
        changed = int((~formation.active).sum())
    given: dict[str, Any] = asdict(run) | {"leave_ms": run.leave_ms or run.join_ms}
    return FormationRow(
        **given,
        **asdict(counts),
        changed=changed,
        groups=len(formation.leaders),
        messages=counts.messages,
        stable_measurements=formation.stable_measurements(),
        first_ticks=first.ticks,
        first_messages=first.messages,
    )


def sweep(*, cities: str = "regions", seed: int = 1, quick: bool = False) -> list[FormationRun]:
    """The published sweep: every threshold with every number of brokers."""
    thresholds = (10, 20, 50, 100, 200, 400) if quick else THRESHOLDS_MS
    counts = BROKERS[:5] if quick else BROKERS
    return [FormationRun("form", count, ms, cities, seed=seed) for ms in thresholds for count in counts]


def list_runs(*, quick: bool = False) -> list[FormationRun]:
    """How much the city list and chance matter: the smallest threshold on every list, with several seeds."""
    seeds = (2, 3) if quick else (2, 3, 4, 5, 6)
    return [
        FormationRun("form", count, 10, name, seed=seed) for name in LISTS for count in BROKERS[:5] for seed in seeds
    ]


def change_runs(*, cities: str = "regions", seed: int = 1, quick: bool = False) -> list[FormationRun]:
    """Infrastructure changes after formation."""
    brokers, shares = (1200, (0.001, 0.01, 0.1)) if quick else (6000, (0.0002, 0.001, 0.01, 0.05, 0.1))
    return [
        FormationRun("change", brokers, 30, cities, seed=seed, change=change, share=share)
        for change in CHANGES
        for share in shares
    ]


def watch_runs(*, cities: str = "regions", seed: int = 1, quick: bool = False) -> list[FormationRun]:
    """Noisy probes with and without the paper's remedies: two thresholds, a moving mean, both."""
    brokers, thresholds = (300, (30,)) if quick else (1200, (10, 30, 100))
    return [
        FormationRun("watch", brokers, ms, cities, leave_ms=leave * ms, seed=seed, noise=noise, probes=probes)
        for ms in thresholds
        for noise in (0.05, 0.1, 0.2)
        for leave in (1.0, 1.5)
        for probes in (1, 20)
    ]
