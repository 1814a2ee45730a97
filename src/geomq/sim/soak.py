"""Many short simulations with faults, each from one seed; every rule is checked in each of them.

    python -m geomq.sim.soak --seeds 1000             # all strategies, seeds 0 to 999
    python -m geomq.sim.soak --strategy mesh --seed 7 # replay one
    python -m geomq.sim.soak --strategy hubs:Hubs,mesh --option redundancy=3

A run has four parts: clients settle; they publish while frames get lost, links are cut and brokers crash; they also
move and change subscriptions under the same faults; and, when all is healed and quiet, everybody publishes once more.
"""

import argparse
import random
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations, repeat
from typing import Any

from geomq.errors import ConfigError
from geomq.geo import Circle, Fence, Location, NearestAreas
from geomq.routing.choice import names_of, options_for, typed
from geomq.routing.events import ClientMoved, ClientPublished, ClientSubscribed, ClientUnsubscribed, RoutingEvent
from geomq.routing.federation import Broker, Federation
from geomq.routing.model import BrokerId, ClientId
from geomq.routing.registry import STRATEGIES, strategy_class
from geomq.sim.checkers import BoundedState, Checker, NoDuplicates, NoLoops, OneOfEachGroup, SameAsOracle
from geomq.sim.faults import Crash, Cut, Disturbance, FaultySimulation
from geomq.sim.script import Step

BROKERS = 4
CLIENTS = 8
MEMBERS = 6
TOPICS = ("a/x", "a/y", "b")
FILTERS = ("a/x", "a/+", "b", "#", "+")
SHARES = ("crew", "watch")
REROUTING = ("broadcast_groups",)
"""These look for another way when a broker is gone, instead of waiting for it; what was under way may be lost."""

SETTLED_MS, DRAIN_MS, CHURN_MS, HEALED_MS, QUIET_MS, END_MS = 15_000, 25_000, 40_000, 50_000, 80_000, 105_000


class Dicer:
    """Makes up a world and what happens in it from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.published = 0
        brokers = [Broker(BrokerId(f"b{i}"), self.place()) for i in range(BROKERS)]
        self.federation = Federation(brokers, NearestAreas([broker.location for broker in brokers]))
        self.clients = [ClientId(f"c{i}") for i in range(CLIENTS)]
        self.members = [ClientId(f"m{i}") for i in range(MEMBERS)]
        """Clients with shared subscriptions only, so that it is plain why one gets an event."""
        everybody = (*self.clients, *self.members)
        self.homes = {client: self.random.choice(self.federation.ids) for client in everybody}

    def place(self) -> Location:
        return Location(self.random.uniform(30, 60), self.random.uniform(-20, 40))

    def fence(self) -> Fence | None:
        radius_m = self.random.choice([None, 200_000.0, 1_000_000.0, 4_000_000.0])
        return None if radius_m is None else Circle(self.place(), radius_m)

    def move(self) -> RoutingEvent:
        return ClientMoved(self.random.choice([*self.clients, *self.members]), self.place())

    def subscribe(self) -> RoutingEvent:
        return ClientSubscribed(self.random.choice(self.clients), self.random.choice(FILTERS), self.fence())

    def join(self) -> RoutingEvent:
        client, topic_filter = self.random.choice(self.members), self.random.choice(FILTERS)
        return ClientSubscribed(client, topic_filter, self.fence(), self.random.choice(SHARES))

    def leave(self) -> RoutingEvent:
        client, topic_filter = self.random.choice(self.members), self.random.choice(FILTERS)
        return ClientUnsubscribed(client, topic_filter, self.random.choice(SHARES))

    def unsubscribe(self) -> RoutingEvent:
        return ClientUnsubscribed(self.random.choice(self.clients), self.random.choice(FILTERS))

    def publish(self) -> RoutingEvent:
        self.published += 1
        client, topic = self.random.choice(self.clients), self.random.choice(TOPICS)
        return ClientPublished(client, topic, self.fence(), payload=str(self.published).encode(), qos=1)

    def script(self, events: Sequence[RoutingEvent], from_ms: int, until_ms: int) -> list[Step]:
        times = sorted(self.random.randrange(from_ms, until_ms) for _ in events)
        return [
            Step(t, self.homes[event.client], event)  # type: ignore[attr-defined]
            for t, event in zip(times, events, strict=True)
        ]

    def setting_up(self) -> list[Step]:
        first = [ClientMoved(client, self.place()) for client in self.homes]
        asked = [*(self.subscribe() for _ in range(16)), *(self.join() for _ in range(8))]
        return self.script([*first, *asked], 0, 3_000)

    def churn(self) -> list[Step]:
        ways = [self.move, self.subscribe, self.unsubscribe, self.publish, self.join, self.leave]
        makers = self.random.choices(ways, k=50)
        return self.script([make() for make in makers], CHURN_MS, HEALED_MS)

    def faults(self, from_ms: int, until_ms: int) -> tuple[list[Cut], list[Crash]]:
        """Cuts and crashes that are all healed at `until_ms`."""
        pairs = list(combinations(self.federation.ids, 2))
        spans = [self.span(from_ms, until_ms) for _ in range(4 + BROKERS)]
        cuts = [Cut(*spans[i], *self.random.choice(pairs)) for i in range(self.random.randrange(5))]
        crashed = [broker for broker in self.federation.ids if self.random.random() < 0.4]
        return cuts, [Crash(*spans[4 + i], broker) for i, broker in enumerate(crashed)]

    def span(self, from_ms: int, until_ms: int) -> tuple[int, int]:
        start = self.random.randrange(from_ms, until_ms - 200)
        return start, self.random.randrange(start + 100, until_ms)


def run(strategy: str, seed: int, options: Mapping[str, Any] | None = None) -> list[str]:
    """One run; returns its violations."""
    dicer = Dicer(seed)
    checkers: list[Checker] = [
        NoDuplicates(),
        NoLoops(hops_max=2 * BROKERS),
        BoundedState(entries_per_subscription=4 + BROKERS),
        SameAsOracle(from_ms=QUIET_MS),
        OneOfEachGroup(from_ms=SETTLED_MS, until_ms=DRAIN_MS),
        OneOfEachGroup(from_ms=QUIET_MS),
    ]
    if strategy not in REROUTING:
        checkers.append(SameAsOracle(from_ms=SETTLED_MS, until_ms=DRAIN_MS))
    simulation = FaultySimulation(
        dicer.federation,
        strategy,
        options=options,
        seed=seed,
        observers=checkers,
    )
    simulation.connect_all()
    simulation.measure_all()
    simulation.run(dicer.setting_up(), until_ms=SETTLED_MS)
    loss = dicer.random.choice([0.0, 0.05, 0.2])
    rough, calm = Disturbance(loss=loss, repeat=loss, late=loss), Disturbance()
    simulation.disturbance = rough
    simulation.plan(*dicer.faults(SETTLED_MS, DRAIN_MS))
    simulation.run(dicer.script([dicer.publish() for _ in range(30)], SETTLED_MS, DRAIN_MS), until_ms=DRAIN_MS)
    simulation.disturbance = calm
    simulation.advance(CHURN_MS)
    simulation.disturbance = rough
    simulation.plan(*dicer.faults(CHURN_MS, HEALED_MS))
    simulation.run(dicer.churn(), until_ms=HEALED_MS)
    simulation.disturbance = calm
    simulation.advance(QUIET_MS)
    last = [dicer.publish() for _ in range(20)]
    simulation.run(dicer.script(last, QUIET_MS, QUIET_MS + 5_000), until_ms=END_MS)
    for checker in checkers:
        checker.finish(simulation)
    return [violation for checker in checkers for violation in checker.violations]


def run_all(seed: int, strategies: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One seed under each strategy with its options; returns a line for each that failed, with the command that
    repeats it."""
    failures = []
    for strategy, options in strategies.items():
        try:
            violations = run(strategy, seed, options)
        except Exception as error:
            violations = [f"{type(error).__name__}: {error}"]
        if violations:
            again = command_of(strategy, seed, options)
            failures.append(
                f"{strategy}, seed {seed}: {violations[0]} (and {len(violations) - 1} more); again: {again}"
            )
    return failures


def command_of(strategy: str, seed: int, options: Mapping[str, Any]) -> str:
    """What repeats one run."""
    words = ["python", "-m", "geomq.sim.soak", "--strategy", strategy, "--seed", str(seed)]
    for option in typed(options):
        words += ["--option", option]
    return shlex.join(words)


def _outcomes(seeds: Sequence[int], strategies: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """The failures of each seed; one seed alone runs in this process, where a debugger can follow it."""
    if len(seeds) == 1:
        yield run_all(seeds[0], strategies)
        return
    with ProcessPoolExecutor() as pool:
        yield from pool.map(run_all, seeds, repeat(strategies), chunksize=4)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geomq.sim.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=_count, default=100, help="how many seeds, from 0")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--strategy", help="only these, separated by commas; package.module:Class for your own")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="for those of the strategies that have it"
    )
    options = parser.parse_args(arguments)
    try:
        names = names_of(options.strategy) if options.strategy else [name for name in STRATEGIES if name != "single"]
        strategies = options_for(names, options.option)
        for strategy in strategies:
            strategy_class(strategy).check(Dicer(0).federation)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    seeds = [options.seed] if options.seed is not None else list(range(options.seeds))
    failed = 0
    for done, failures in enumerate(_outcomes(seeds, strategies), start=1):
        failed += len(failures)
        for line in failures:
            print(line)
        if sys.stderr.isatty():
            print(f"\r{done}/{len(seeds)} seeds", end="", file=sys.stderr)
    print(f"{len(seeds)} seeds x {len(strategies)} strategies: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
