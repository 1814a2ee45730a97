"""A sweep: the simulator runs every combination of strategies, seeds and parameters, each run one row of the result.

Owns which runs there are and what is kept of each. A row depends on its run alone, so it is the same in this process,
in a pool and on Spark (`sweep_on_spark.py`). A run that fails becomes a row that says why; it does not end the others.
"""

import contextlib
import json
import re
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from geomq.errors import GeomqError, UsageError
from geomq.pipeline.pool import in_processes
from geomq.pipeline.simulation import Scenario, simulate_one
from geomq.routing.core.messages import KINDS
from geomq.routing.strategies.choice import options_for, typed
from geomq.routing.strategies.registry import STRATEGIES, strategy_class

RUNS_MAX = 10_000
NUMBERS = ("seed", "brokers", "clients", "seconds", "topics")
OPTION = "option."


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """What a run is given."""

    strategy: str
    scenario: Scenario
    options: dict[str, Any]

    @property
    def options_text(self) -> str:
        return json.dumps(self.options, sort_keys=True) if self.options else ""

    @property
    def cost(self) -> float:
        """How its length compares to that of other runs."""
        return float(self.scenario.clients * self.scenario.seconds * self.scenario.brokers)

    def command(self) -> str:
        """What repeats it alone."""
        words = ["geomq", "simulate", "--strategy", self.strategy]
        for name, value in self.scenario.describe().items():
            words += [f"--{name}", str(value)]
        for option in typed(self.options):
            words += ["--option", option]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class SimulationRow:
    """What a run was given and found; the columns of the dataset `simulations`."""

    run: int
    strategy: str
    options: str
    preset: str
    brokers: int
    clients: int
    seconds: int
    topics: int
    seed: int
    error: str | None = None
    event_messages: int | None = None
    subscription_messages: int | None = None
    delivery_messages: int | None = None
    location_messages: int | None = None
    control_messages: int | None = None
    total_messages: int | None = None
    redundant_messages: int | None = None
    load_max: int | None = None
    deliveries: int | None = None
    latency_mean_ms: float | None = None
    latency_std_ms: float | None = None
    latency_p50_ms: int | None = None
    latency_p99_ms: int | None = None
    delay_mean_ms: float | None = None
    expected: int | None = None
    missed: int | None = None
    unexpected: int | None = None
    doubled: int | None = None
    first: str | None = None
    trace_hash: str | None = None

    @property
    def is_wrong(self) -> bool:
        return bool(self.error or self.missed or self.unexpected or self.doubled)


def runs_of(
    scenario: Scenario, strategies: Sequence[str] | None, terms: Iterable[str], options: Iterable[str] = ()
) -> list[SimulationRun]:
    """Every combination of `name=value,value` and `name=first..last` terms with every strategy, each run once.

    Without strategies all that can serve the federation. An option goes to the strategies that have it.
    """
    axes = _axes(terms)
    if prod(len(values) for values in axes.values()) * len(strategies or STRATEGIES) > RUNS_MAX:
        raise UsageError(f"a sweep has at most {RUNS_MAX:,} runs; split it")
    runs: dict[tuple[str, str, Scenario], SimulationRun] = {}
    served: dict[int, list[str]] = {}
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        numbers = {name: _number(name, text) for name, text in point.items() if name in NUMBERS}
        at = replace(scenario, **numbers)  # type: ignore[arg-type]
        swept = [f"{name.removeprefix(OPTION)}={text}" for name, text in point.items() if name.startswith(OPTION)]
        if at.brokers not in served:
            served[at.brokers] = _serving(at, strategies)
        for name, chosen in _options_for(tuple(served[at.brokers]), (*options, *swept)).items():
            run = SimulationRun(name, at, chosen)
            runs.setdefault((name, run.options_text, at), run)
    return list(runs.values())


_options_for = lru_cache(maxsize=256)(options_for)


def _serving(scenario: Scenario, strategies: Sequence[str] | None) -> list[str]:
    """The strategies for a federation of this size; one named that cannot serve it is refused."""
    if strategies is None:
        return scenario.strategies()
    for name in strategies:
        strategy_class(name).check(scenario.federation())
    return list(strategies)


def _axes(terms: Iterable[str]) -> dict[str, list[str]]:
    axes: dict[str, list[str]] = {}
    for term in terms:
        name, _, text = term.partition("=")
        values = list(dict.fromkeys(_values(text)))
        if not (name in NUMBERS or name.startswith(OPTION)) or not values:
            known = ", ".join((*NUMBERS, f"{OPTION}NAME"))
            raise UsageError(f"a sweep is name=value,value or name=first..last with a name from {known}, not {term!r}")
        if name in axes:
            raise UsageError(f"{name} is swept twice; give all its values at once")
        axes[name] = values
    return axes


def _values(text: str) -> Iterator[str]:
    """What commas separate, except inside a JSON array or object; `first..last` stands for each number."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        end = text.find(",", position)
        if text[position] in "[{":
            with contextlib.suppress(ValueError, RecursionError):
                end = decoder.raw_decode(text, position)[1]
        part = text[position:end] if end >= 0 else text[position:]
        position += len(part) + 1
        bounds = re.fullmatch(r"(\d{1,15})\.\.(\d{1,15})", part)
        if bounds is None:
            yield part
            continue
        first, last = int(bounds[1]), int(bounds[2])
        if last - first >= RUNS_MAX:
            raise UsageError(f"{part} has more than {RUNS_MAX:,} numbers")
        yield from map(str, range(first, last + 1))


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number for {name}") from None


def run_numbered(numbered: tuple[int, SimulationRun]) -> SimulationRow:
    """Carry out one run; what goes wrong in it, in a strategy of the user's own, say, is part of the row."""
    number, run = numbered
    given = run.scenario.describe()
    try:
        result = simulate_one(run.scenario, run.strategy, run.options)
    except Exception as error:
        return SimulationRow(number, run.strategy, run.options_text, **given, error=_in_one_line(error))
    messages, latency, verdict = result["messages"], result["latency_ms"], result["verdict"]
    found = {f"{kind}_messages": messages[kind] for kind in (*KINDS, "total")}
    found |= {f"latency_{name}_ms": latency.get(name) for name in ("mean", "std", "p50", "p99")}
    return SimulationRow(
        number,
        run.strategy,
        run.options_text,
        **given,
        **found,
        **verdict,
        redundant_messages=result["redundant"],
        load_max=result["load_max"],
        deliveries=result["deliveries"],
        delay_mean_ms=result["subscription_delay_ms"].get("mean"),
        trace_hash=result["trace_hash"],
    )


def _in_one_line(error: Exception) -> str:
    """The error and, unless it is one of ours, the line where it was raised."""
    text = " ".join(str(error).split())
    if isinstance(error, GeomqError):
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(last.filename).name}:{last.lineno})"


def longest_first(runs: Sequence[SimulationRun]) -> list[tuple[int, SimulationRun]]:
    """The runs with their numbers, in the order in which they had better start."""
    return sorted(enumerate(runs), key=lambda numbered: -numbered[1].cost)


def sweep_locally(
    runs: Sequence[SimulationRun], *, progress: Callable[[int], object] | None = None
) -> list[SimulationRow]:
    """The rows of all runs in their order, without Spark."""
    rows = []
    for row in in_processes(run_numbered, longest_first(runs)):
        rows.append(row)
        if progress is not None:
            progress(len(rows))
    return sorted(rows, key=lambda row: row.run)
