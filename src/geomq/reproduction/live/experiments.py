"""The published live experiments as plans: three scenarios with five strategies, and cars with three ways of telling.

Owns the set-ups: places, links, thresholds. Which numbers should come out is the reproduction's business.
"""

from pathlib import Path
from typing import Any, NamedTuple

from geomq.reproduction.live.iov import CLOUD_BROKER, EDGES
from geomq.routing.trace.records import Step
from geomq.testbed.plan import CLOUD, BrokerPlan, Cloud, Common, Link, TestbedPlan, Workload
from geomq.workload.world import MS_PER_KM

SCENARIOS = ("open", "hiking", "context")
STRATEGIES = ("disgb_events", "disgb_subscriptions", "flood_events", "flood_subscriptions", "adaptive")
SLOWER = {"open": 2.0}
"""This scenario has five times the deliveries of the others: at their speed two cores would not keep up."""
TRACED: tuple[Step, ...] = ("published", "sent", "received")
WAYS = {"global flooding": 100_000.0, "cloud relay": 0.0, "broadcast groups": 5.0}
"""The join threshold in milliseconds that makes broadcast groups behave that way."""
LEAVE_MS_MIN = 60.0
FORM_S = 6.0
"""Groups need this long beside a second for every latency probe."""

CAR_MS, MONITOR_MS, AUTHORITY_MS = 2.0, 2.0, 2.0
LINKS_MS = {
    ("edge-2", "edge-3"): 3.0,
    ("edge-1", "edge-2"): 20.0,
    ("edge-1", "edge-3"): 20.0,
    ("edge-1", CLOUD): 40.0,
    ("edge-2", CLOUD): 25.5,
    ("edge-3", CLOUD): 25.5,
}
"""One way. Published are 3 ms between edges 2 and 3, and sums: 55 ms car to car by the cloud, 44 to the authority."""


class Experiment(NamedTuple):
    """A plan, and what it is called in a report."""

    group: str
    name: str
    plan: TestbedPlan


def scenario_experiments(datasets: dict[str, Path], *, speed: float, strategies: tuple[str, ...]) -> list[Experiment]:
    """Every scenario with every strategy."""
    return [
        Experiment(scenario, strategy, scenario_plan(dataset, strategy, speed=speed_of(scenario, speed)))
        for scenario, dataset in datasets.items()
        for strategy in strategies
    ]


def speed_of(scenario: str, speed: float) -> float:
    """At which speed a scenario runs in a study of that speed."""
    return speed / SLOWER.get(scenario, 1.0)


def scenario_plan(dataset: Path, strategy: str, *, speed: float) -> TestbedPlan:
    """Three brokers as far from each other as their cities, clients next to their brokers."""
    return TestbedPlan(
        testbed=Common(strategy=strategy, ms_per_km=MS_PER_KM, trace=TRACED),
        workload=Workload(dataset=str(dataset), speed=speed),
    )


def iov_experiments(dataset: Path, *, speed: float, probes: int = 20) -> list[Experiment]:
    """The cars with each way of telling; groups form by the mean of that many latency probes."""
    return [
        Experiment("iov", way, iov_plan(dataset, join_ms, speed=speed, probes=probes)) for way, join_ms in WAYS.items()
    ]


def iov_plan(dataset: Path, join_ms: float, *, speed: float, probes: int) -> TestbedPlan:
    """Three edge brokers that form groups by themselves, and a Mosquitto. If all form one, the first edge leads: what
    is monitored goes from there straight to the cloud, as published."""
    options: dict[str, Any] = {
        "join_ms": join_ms,
        "leave_ms": max(LEAVE_MS_MIN, 1.5 * join_ms),
        "probes": probes,
        "lcm": {"edge-1": 1.0},
    }
    hops = {"edge-1": MONITOR_MS, "edge-2": CAR_MS, "edge-3": CAR_MS, CLOUD_BROKER: AUTHORITY_MS}
    assert set(hops) == {*EDGES, CLOUD_BROKER}
    return TestbedPlan(
        testbed=Common(
            strategy="broadcast_groups",
            options=options,
            trace=TRACED,
            settle_s=0.0 if join_ms == 0 else FORM_S + probes,
        ),
        workload=Workload(dataset=str(dataset), speed=speed, processes=1),
        brokers=tuple(BrokerPlan(name=name, latency_ms=ms) for name, ms in hops.items()),
        cloud=Cloud(enabled=True, broker=CLOUD_BROKER),
        links=tuple(Link(between=pair, latency_ms=ms) for pair, ms in LINKS_MS.items()),
    )
