"""Runs simulations with one line of the product changed: what the simulations do not notice, they do not test.

The fault goes into the text of its module on the way to the compiler, in a process of its own; files stay as they are.
A seed counts as having found it only if it passes without it.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, NamedTuple

import geomq

SEEDS_MAX = 200
PACKAGE = Path(geomq.__file__).parent
"""Where the modules are that a fault may be planted in."""
Simulation = Literal["brokers", "storm", "workers", "routing"]
"""Whole brokers; the same in a storm; with workers; or their routing alone, where federations change."""


class Fault(NamedTuple):
    """One line of a module that reads otherwise; the old one must stand there once, without its indentation."""

    name: str
    module: str
    old: str
    new: str
    seed: int = 0
    """One that is known to find it, to be tried first; the others follow if it no longer does."""
    simulation: Simulation = "brokers"
    """Which one has to find it."""

    @property
    def path(self) -> Path:
        return PACKAGE.joinpath(*self.module.split(".")[1:]).with_suffix(".py")

    def plant(self, source: str) -> str:
        """The text of the module with the fault in it."""
        lines = source.split("\n")
        found = [number for number, line in enumerate(lines) if line.strip() == self.old]
        if len(found) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {len(found)} times in {self.module}")
        line = lines[found[0]]
        lines[found[0]] = line[: len(line) - len(line.lstrip())] + self.new
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Found:
    """The seed that found a fault, and by what."""

    fault: Fault
    seed: int | None
    verdict: str
    seeds_tried: int

    @property
    def line(self) -> str:
        seed = "-" if self.seed is None else str(self.seed)
        return f"{self.fault.name:<62} {self.fault.module.removeprefix('geomq.'):<42} {seed:>4}  {self.verdict}"


# In the child process.


class _Loader(SourceFileLoader):
    def __init__(self, fault: Fault, path: str) -> None:
        super().__init__(fault.module, path)
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        source = self._fault.plant(Path(self.path).read_text())
        return self.source_to_code(source.encode(), self.path)


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(self._fault, spec.origin)
        return spec


def violations_of(seed: int, simulation: Simulation) -> Iterator[str]:
    """What one seed finds wrong."""
    try:
        yield from _violations_of_routing(seed) if simulation == "routing" else _violations_of_brokers(seed, simulation)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def _violations_of_brokers(seed: int, simulation: Simulation) -> Iterator[str]:
    from geomq.sim.virtual.run import run  # not before the fault is planted
    from geomq.sim.virtual.scenario import Options

    options = Options(workers=2 if simulation == "workers" else 1, storm=simulation == "storm")
    yield from map(str, run(seed, options).violations)


def _violations_of_routing(seed: int) -> Iterator[str]:
    """One strategy for each seed."""
    from geomq.routing.strategies.registry import STRATEGIES
    from geomq.sim.soak_run import run

    federated = [name for name in STRATEGIES if name != "single"]
    yield from run(federated[seed % len(federated)], seed)


def _look(fault: Fault | None, simulation: Simulation, seeds: Sequence[int]) -> None:
    """Print the first of the seeds that fails, and why."""
    if fault is not None:
        sys.meta_path.insert(0, _Finder(fault))
    for seed in seeds:
        for violation in violations_of(seed, simulation):
            print(json.dumps([seed, violation]))
            return


# In the parent process.


class Search:
    """Looks for faults, each until a seed finds it that passes without."""

    def __init__(self, seeds_max: int = SEEDS_MAX) -> None:
        """With no seeds at all only those are tried that are noted beside the faults."""
        self._seeds_max = seeds_max
        self._healthy: dict[tuple[Simulation, int], bool] = {}

    def look_for(self, fault: Fault) -> Found:
        """ValueError or SyntaxError if the fault cannot be planted: a process that fails for that has found nothing."""
        compile(fault.plant(fault.path.read_text()), fault.path, "exec", dont_inherit=True)
        seeds = [fault.seed, *(seed for seed in range(self._seeds_max) if seed != fault.seed)]
        left = seeds
        while left:
            found = _ask(left, fault.simulation, fault)
            if found is None:
                break
            seed, violation = found
            left = left[left.index(seed) + 1 :]
            if self._passes_without(fault.simulation, seed):
                return Found(fault, seed, violation.split("; again:")[0][:110], len(seeds) - len(left))
        return Found(fault, None, "NOT FOUND", len(seeds))

    def _passes_without(self, simulation: Simulation, seed: int) -> bool:
        known = self._healthy.get((simulation, seed))
        if known is None:
            known = self._healthy[simulation, seed] = _ask([seed], simulation, None) is None
        return known


def _ask(seeds: Sequence[int], simulation: Simulation, fault: Fault | None) -> tuple[int, str] | None:
    """What a process of its own finds first."""
    task = json.dumps([list(seeds), simulation, fault])
    result = subprocess.run(
        [sys.executable, "-m", "geomq.sim.planting", task],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        return seeds[0], f"the broker cannot even start: {last}"
    found: Any = json.loads(result.stdout) if result.stdout.strip() else None
    return None if found is None else (found[0], found[1])


def search_all(faults: Sequence[Fault], *, seeds_max: int = SEEDS_MAX) -> Iterator[Found]:
    """Look for every fault, several at a time, in order."""
    search = Search(seeds_max)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield from pool.map(search.look_for, faults)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m geomq.sim.planting")
    parser.add_argument("task", help="as `Search` writes it")
    seeds, simulation, fault = json.loads(parser.parse_args().task)
    _look(None if fault is None else Fault(*fault), simulation, seeds)


if __name__ == "__main__":
    main()
