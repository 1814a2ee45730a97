"""One run of the routing alone under faults, from its seed to its violations."""

from collections.abc import Mapping
from typing import Any

from geomq.routing.federation.changes import SetStrategy
from geomq.sim.changing import ChangingSimulation
from geomq.sim.checkers import (
    BoundedState,
    Checker,
    Converged,
    NoDuplicates,
    NoLoops,
    OneOfEachGroup,
    SameAsOracle,
    SameRetained,
)
from geomq.sim.fast_paths import FastPaths
from geomq.sim.faults import Disturbance
from geomq.sim.retained import RetainedDisks
from geomq.sim.soak_world import (
    BROKERS,
    CHURN_MS,
    DRAIN_MS,
    END_MS,
    HEALED_MS,
    LATE,
    QUIET_MS,
    REROUTING,
    RESHAPED_MS,
    RESUBSCRIBED_MS,
    SETTLED_MS,
    Dicer,
)


def run(strategy: str, seed: int, options: Mapping[str, Any] | None = None) -> list[str]:
    """One run; returns its violations."""
    dicer = Dicer(seed)
    checkers = _checkers(strategy)
    description = dicer.description(strategy, options)
    home = SetStrategy(strategy, description.options)
    simulation = ChangingSimulation(
        description,
        late={LATE: dicer.late},
        seed=seed,
        observers=checkers,
        fast_paths=FastPaths(seed),
        retained=RetainedDisks(seed),
    )
    simulation.connect_all()
    simulation.measure_all()
    simulation.run(dicer.setting_up(), until_ms=SETTLED_MS)
    loss = dicer.random.choice([0.0, 0.05, 0.2])
    rough, calm = Disturbance(loss=loss, repeat=loss, late=loss), Disturbance()
    simulation.disturbance = rough
    simulation.plan(*dicer.faults(SETTLED_MS, DRAIN_MS))
    simulation.plan_changes(*dicer.changes(SETTLED_MS, DRAIN_MS, home))
    simulation.run(dicer.publishing(30, SETTLED_MS, DRAIN_MS), until_ms=DRAIN_MS)
    simulation.disturbance = calm
    simulation.advance(CHURN_MS)
    simulation.disturbance = rough
    simulation.plan_changes(*dicer.changes(CHURN_MS, HEALED_MS, home))
    simulation.plan(*dicer.faults(CHURN_MS, HEALED_MS))
    simulation.run(dicer.churn(), until_ms=HEALED_MS)
    simulation.disturbance = calm
    simulation.advance(QUIET_MS)
    simulation.run(dicer.publishing(12, QUIET_MS, QUIET_MS + 3_000), until_ms=QUIET_MS + 8_000)
    simulation.run(dicer.retaining(QUIET_MS + 8_000, QUIET_MS + 9_000), until_ms=RESUBSCRIBED_MS)
    simulation.run(dicer.resubscribing(RESUBSCRIBED_MS, RESUBSCRIBED_MS + 500), until_ms=RESHAPED_MS)
    if dicer.random.random() < 0.3:
        simulation.plan_changes(dicer.change(RESHAPED_MS, RESHAPED_MS + 1_500, home))
    simulation.run(dicer.publishing(12, RESHAPED_MS, RESHAPED_MS + 3_000), until_ms=END_MS)
    for checker in checkers:
        checker.finish(simulation)
    return [violation for checker in checkers for violation in checker.violations]


def _checkers(strategy: str) -> list[Checker]:
    checkers: list[Checker] = [
        NoDuplicates(),
        NoLoops(hops_max=2 * BROKERS),
        BoundedState(entries_per_subscription=4 + BROKERS),
        SameAsOracle(from_ms=QUIET_MS),
        OneOfEachGroup(from_ms=SETTLED_MS, until_ms=DRAIN_MS, lossy=True),
        OneOfEachGroup(from_ms=QUIET_MS),
        Converged(),
        SameRetained(settled_ms=QUIET_MS),
    ]
    if strategy not in REROUTING:
        checkers.append(SameAsOracle(from_ms=SETTLED_MS, until_ms=DRAIN_MS, lossy=True))
    return checkers
