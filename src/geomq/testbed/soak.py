"""Fault runs one after the other, for `make soak` and for looking into a single one.

python -m geomq.testbed.soak --seconds 60                    # every strategy, one run each
python -m geomq.testbed.soak --strategy mesh --seed 7        # one run; its folder is kept if it fails
python -m geomq.testbed.soak --hop --runs 10 --seconds 60    # clients hop between brokers that are killed
python -m geomq.testbed.soak --partitions 100                # five brokers are split in two and joined, again and again
"""

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import get_args

from geomq.routing.strategies.registry import STRATEGIES
from geomq.testbed.faults import FaultPlan, FaultRun
from geomq.testbed.hops import HopPlan, HopRun, Missing, passes
from geomq.testbed.partitions import PartitionPlan, PartitionRun
from geomq.testbed.processes import stoppable

CONVERGED_S_MAX = 10.0
ONE_STRATEGY = "disgb_events"
"""Of runs that are not made for every strategy."""


def plan_for(strategy: str, seed: int, seconds: float) -> FaultPlan:
    return FaultPlan(strategy, seed, seconds, brokers=5)


def hop_plan_for(strategy: str, seed: int, seconds: float, missing: Missing) -> HopPlan:
    return HopPlan(strategy, seed, seconds, session_missing=missing)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geomq.testbed.soak", description=__doc__.splitlines()[0])
    federated = [name for name in STRATEGIES if name != "single"]
    parser.add_argument("--strategy", choices=federated, action="append", help="which; all if none is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1, help="so many seeds, from the first on")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long a run is disturbed")
    parser.add_argument("--hop", action="store_true", help="clients hop with their sessions")
    parser.add_argument("--partitions", type=int, default=0, help="split the federation so often, and do nothing else")
    chosen = parser.parse_args(words)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every answer to a broker that was just killed
    seeds, plans = range(chosen.seed, chosen.seed + chosen.runs), list[FaultPlan]()
    if chosen.partitions:
        splits = product(chosen.strategy or [ONE_STRATEGY], seeds)
        plans += (PartitionPlan(*each, cycles=chosen.partitions) for each in splits)
    elif chosen.hop:
        hops = product(chosen.strategy or [ONE_STRATEGY], get_args(Missing), seeds)
        plans += (hop_plan_for(strategy, seed, chosen.seconds, missing) for strategy, missing, seed in hops)
    else:
        plans += (plan_for(*each, chosen.seconds) for each in product(chosen.strategy or federated, seeds))
    failed = sum(not _one(plan) for plan in plans)
    print(f"{failed} runs failed")
    return 1 if failed else 0


def _run_of(plan: FaultPlan, folder: Path) -> FaultRun:
    match plan:
        case HopPlan():
            return HopRun(plan, folder)
        case PartitionPlan():
            return PartitionRun(plan, folder)
    return FaultRun(plan, folder)


def _one(plan: FaultPlan) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="geomq-faults-"))
    run = _run_of(plan, folder)
    verdict = asyncio.run(stoppable(run.run()))
    passed = verdict.converged_s <= CONVERGED_S_MAX
    told = {"strategy": plan.strategy, "seed": plan.seed, "faults": len(run.done), **verdict.as_dict()}
    if isinstance(plan, HopPlan) and isinstance(run, HopRun):
        passed = passed and passes(plan, verdict)
        told = {"session_missing": plan.session_missing, "hops": run.hops, **told}
    else:
        passed = passed and verdict.clean
    if isinstance(run, PartitionRun):
        told["linked_s_max"] = round(run.linked_s_max, 2)
        passed = passed and run.linked_s_max <= CONVERGED_S_MAX
    print(json.dumps(told), flush=True)
    if passed:
        shutil.rmtree(folder)
    else:
        print(f"  {'; '.join(run.done)}\n  see {folder}", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
