"""Fault runs one after the other, for `make soak` and for looking into a single one.

python -m geomq.testbed.soak --seconds 60                    # every strategy, one run each
python -m geomq.testbed.soak --strategy mesh --seed 7        # one run; its folder is kept if it fails
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from geomq.routing.registry import STRATEGIES
from geomq.testbed.faults import FaultRun, Plan
from geomq.testbed.processes import stoppable

CONVERGED_S_MAX = 10.0


def plan_for(strategy: str, seed: int, seconds: float) -> Plan:
    return Plan(strategy, seed, seconds, brokers=5)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geomq.testbed.soak", description=__doc__.splitlines()[0])
    federated = [name for name in STRATEGIES if name != "single"]
    parser.add_argument("--strategy", choices=federated, action="append", help="which; all if none is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1, help="so many seeds, from the first on")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long a run is disturbed")
    chosen = parser.parse_args(words)
    failed = 0
    for strategy in chosen.strategy or federated:
        for seed in range(chosen.seed, chosen.seed + chosen.runs):
            failed += not _one(plan_for(strategy, seed, chosen.seconds))
    print(f"{failed} runs failed")
    return 1 if failed else 0


def _one(plan: Plan) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="geomq-faults-"))
    run = FaultRun(plan, folder)
    verdict = asyncio.run(stoppable(run.run()))
    passed = verdict.clean and verdict.converged_s <= CONVERGED_S_MAX
    told = {"strategy": plan.strategy, "seed": plan.seed, "faults": len(run.done), **verdict.as_dict()}
    print(json.dumps(told), flush=True)
    if passed:
        shutil.rmtree(folder)
    else:
        print(f"  {'; '.join(run.done)}\n  see {folder}", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
