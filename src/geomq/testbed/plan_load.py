"""From a TOML file to a checked Plan, or to one line that says which file, section and key is wrong."""

import os
from pathlib import Path
from typing import NoReturn

from geomq.broker.config.toml_tables import TableReader, read_text
from geomq.errors import ConfigError, GeomqError
from geomq.routing.strategies.registry import strategy_class
from geomq.testbed.plan import CLOUD, TestbedPlan
from geomq.workload.generation.presets import PRESETS


def load_plan(path: str | os.PathLike[str]) -> TestbedPlan:
    """Read and check the testbed file at `path`."""
    source = Path(path)
    return parse_plan(read_text(source), name=str(source), base=source.absolute().parent)


def parse_plan(text: str, *, name: str, base: Path) -> TestbedPlan:
    """Check the TOML `text`; `name` is what errors call it, `base` where relative paths start."""
    plan = TableReader(TestbedPlan, name, base).read(text)

    def fail(where: str, what: str) -> NoReturn:
        raise ConfigError(f"{name}: {where}: {what}")

    workload = plan.workload
    if (workload.dataset is None) == (workload.preset is None):
        fail("[workload]", "give either dataset or preset")
    if workload.preset is not None and workload.preset not in PRESETS:
        fail("[workload]", f"preset: {workload.preset!r} is unknown; choose one of {', '.join(PRESETS)}")
    if workload.dataset is not None and workload.clients is not None:
        fail("[workload]", "clients: a dataset has its own")
    try:
        strategy_class(plan.testbed.strategy)
    except GeomqError as error:
        fail("[testbed]", f"strategy: {error}")
    names = [broker.name for broker in plan.brokers]
    for number, each in enumerate(names, 1):
        if each in names[: number - 1]:
            fail(f"[[brokers]] #{number}", f"name: {each!r} already has a table")
    seen: set[frozenset[str]] = set()
    for number, link in enumerate(plan.links, 1):
        pair = frozenset(link.between)
        if len(pair) != 2 or pair in seen:
            fail(f"[[links]] #{number}", f"between: {' and '.join(link.between)} already have a link, or are the same")
        if CLOUD in pair and not plan.cloud.enabled:
            fail(f"[[links]] #{number}", "between: there is no cloud; set enabled = true in [cloud]")
        seen.add(pair)
    return plan
