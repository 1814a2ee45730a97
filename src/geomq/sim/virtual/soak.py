"""Many seeds of whole brokers, side by side, and what became of each in a line."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import repeat

from geomq.routing.strategies.choice import typed
from geomq.sim.virtual.run import run
from geomq.sim.virtual.scenario import Options


@dataclass(frozen=True, slots=True)
class Played:
    """One seed, without its transcript."""

    seed: int
    failure: str | None
    digest: str
    deliveries: int
    virtual_s: float
    cpu_s: float


def play(seed: int, options: Options = Options()) -> Played:  # noqa: B008
    """One seed; a failure says what to run to see it again."""
    try:
        outcome = run(seed, options)
    except Exception as error:
        text = f"seed {seed}: {type(error).__name__}: {error}; again: {command_of(seed, options)}"
        return Played(seed, text, "", 0, 0.0, 0.0)
    failure = None
    if outcome.violations:
        more = f" (and {len(outcome.violations) - 1} more)" if len(outcome.violations) > 1 else ""
        again = command_of(seed, options)
        failure = f"seed {seed} ({outcome.what}): {outcome.violations[0]}{more}; again: {again}"
    return Played(seed, failure, outcome.digest, outcome.deliveries, outcome.virtual_s, outcome.cpu_s)


def command_of(seed: int, options: Options) -> str:
    """What repeats one run and prints all that happened in it."""
    words = ["python", "-m", "geomq.sim.soak", "--whole", "--seed", str(seed), "--transcript"]
    if options.storm:
        words.append("--storm")
    if options.strategy is not None:
        words += ["--strategy", options.strategy]
    for option in typed(dict(options.strategy_options)):
        words += ["--option", option]
    if options.workers != 1:
        words += ["--workers", str(options.workers)]
    return shlex.join(words)


def _all(seeds: Sequence[int], options: Options) -> Iterator[Played]:
    """One seed alone runs in this process, where a debugger can follow it."""
    if len(seeds) == 1:
        yield play(seeds[0], options)
        return
    with ProcessPoolExecutor() as pool:
        yield from pool.map(play, seeds, repeat(options), chunksize=2)


def soak(seeds: Sequence[int], options: Options = Options()) -> int:  # noqa: B008
    """Play all seeds and print what failed; the exit code."""
    failed = deliveries = 0
    virtual_s = cpu_s = 0.0
    digest = sha256()
    for done, played in enumerate(_all(seeds, options), start=1):
        if played.failure is not None:
            failed += 1
            print(played.failure, flush=True)
        deliveries += played.deliveries
        virtual_s += played.virtual_s
        cpu_s += played.cpu_s
        digest.update(played.digest.encode())
        if sys.stderr.isatty():
            print(f"\r{done}/{len(seeds)} seeds", end="", file=sys.stderr)
    work = f"{deliveries:,} deliveries in {virtual_s:,.0f} virtual s, {cpu_s:,.0f} s of CPU"
    print(f"{len(seeds)} seeds of whole brokers: {failed} failed; {work}; transcripts {digest.hexdigest()[:16]}")
    return 1 if failed else 0


def show(seed: int, options: Options = Options()) -> int:  # noqa: B008
    """Print everything that happened in one run, and what was wrong with it; the exit code."""
    outcome = run(seed, options, log=True)
    for line in outcome.transcript:
        print(line)
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print(f"{len(outcome.violations)} violations; transcript {outcome.digest}")
    return 1 if outcome.violations else 0
