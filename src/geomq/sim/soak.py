"""Many short simulations with faults, each from one seed; every rule is checked in each of them.

    python -m geomq.sim.soak --seeds 1000             # all strategies, seeds 0 to 999
    python -m geomq.sim.soak --strategy mesh --seed 7 # replay one
    python -m geomq.sim.soak --strategy hubs:Hubs,mesh --option redundancy=3
    python -m geomq.sim.soak --whole --seeds 1000     # whole brokers: connections, sessions, disks, links
    python -m geomq.sim.soak --whole --workers 2      # the same, with the clients of each broker at two workers
    python -m geomq.sim.soak --whole --seed 7 --transcript
    python -m geomq.sim.soak --whole --storm --seeds 300
    python -m geomq.sim.soak --planted                # do the simulations notice faults of one line?

Whole brokers are played by `geomq.sim.virtual`. A run of their routing alone has four parts: clients settle; they
publish while frames get lost, links are cut and brokers crash; they also move, change subscriptions, and set and delete
retained events under the same faults; and, when all is healed and quiet, everybody publishes before and after
subscriptions change. In all but the first, brokers join and leave and areas and strategy change. Plain events take the
fast path or go event by event, as dice fall.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import Any

from geomq.errors import ConfigError
from geomq.routing.strategies.choice import names_of, options_for, typed
from geomq.routing.strategies.registry import STRATEGIES, strategy_class
from geomq.sim.soak_run import run
from geomq.sim.soak_world import Dicer


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m geomq.sim.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=_count, default=100, help="how many seeds, from 0")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--strategy", help="only these, separated by commas; package.module:Class for your own")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="for those of the strategies that have it"
    )
    parser.add_argument("--whole", action="store_true", help="whole brokers; the seed chooses the strategy")
    parser.add_argument("--workers", type=_count, default=1, help="with --whole: how many carry clients, and die")
    parser.add_argument(
        "--storm", action="store_true", help="with --whole: clients hop, and brokers are killed, all the time"
    )
    parser.add_argument("--transcript", action="store_true", help="print all that happens in the one run of --seed")
    parser.add_argument("--planted", action="store_true", help="look for each of the faults in geomq.sim.planted")
    parser.add_argument("--fault", default="", metavar="WORDS", help="with --planted: only those with this in the name")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.transcript and not (options.whole and options.seed is not None):
        parser.error("--transcript goes with --whole and --seed")
    if options.storm and not options.whole:
        parser.error("--storm goes with --whole")
    if options.planted:
        return _look_for_planted(options.fault)
    try:
        names = names_of(options.strategy) if options.strategy else [name for name in STRATEGIES if name != "single"]
        strategies = options_for(names, options.option)
        for strategy in strategies:
            if not (options.whole and strategy == "single"):
                strategy_class(strategy).check(Dicer(0).federation)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    seeds = [options.seed] if options.seed is not None else list(range(options.seeds))
    if options.whole:
        chosen = strategies if options.strategy else {}
        return _play_whole(seeds, chosen, options)
    failed = 0
    for done, failures in enumerate(_outcomes(seeds, strategies), start=1):
        failed += len(failures)
        for line in failures:
            print(line)
        if sys.stderr.isatty():
            print(f"\r{done}/{len(seeds)} seeds", end="", file=sys.stderr)
    print(f"{len(seeds)} seeds x {len(strategies)} strategies: {failed} failed")
    return 1 if failed else 0


def _play_whole(seeds: Sequence[int], strategies: Mapping[str, Mapping[str, Any]], wanted: argparse.Namespace) -> int:
    from geomq.sim.virtual.scenario import Options
    from geomq.sim.virtual.soak import show, soak

    named: list[tuple[str | None, Mapping[str, Any]]] = [*strategies.items()] or [(None, {})]
    chosen = [
        Options(name, tuple(options.items()), workers=wanted.workers, storm=wanted.storm) for name, options in named
    ]
    codes = [show(seeds[0], each) if wanted.transcript else soak(seeds, each) for each in chosen]
    return max(codes)


def _look_for_planted(words: str) -> int:
    from geomq.sim.planted import PLANTED
    from geomq.sim.planting import search_all

    faults = [fault for fault in PLANTED if words in fault.name]
    missed = 0
    for found in search_all(faults):
        print(found.line, flush=True)
        missed += found.seed is None
    print(f"{len(faults)} planted faults: {missed} not found")
    return 1 if missed or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
