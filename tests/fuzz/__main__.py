"""Fuzzing of everything that reads bytes from strangers: `python -m tests.fuzz --seconds 3600`.

Every target runs in a process of its own, guided by coverage, from its corpus and from what earlier runs found, which
is kept in `.fuzz`. A crash, an input that takes longer than ten seconds, and memory that grows beyond the limit end it;
the input is then a file there. The admin API is also asked by schemathesis what its own description promises.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.corpus import CORPUS
from tests.fuzz.described import API, ask_as_described

KEPT = Path(__file__).parents[2] / ".fuzz"
HANG_S, MEMORY_MB, INPUT_BYTES = 10, 512, 8_192
STATE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+).*?rss: (\d+)Mb")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="how long each target runs")
    parser.add_argument("--target", choices=[*CORPUS, API], action="append", help="which; all if none is named")
    chosen = parser.parse_args()
    targets = chosen.target or [*CORPUS, API]
    failed = sum(not _one(target, chosen.seconds) for target in targets)
    print(f"{failed} of {len(targets)} targets failed")
    return 1 if failed else 0


def _one(target: str, seconds: int) -> bool:
    run: Callable[[Path, int], tuple[bool, dict[str, object]]]
    folder = KEPT / target.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    run = ask_as_described if target == API else _guided
    began = time.monotonic()
    passed, told = run(folder, seconds)
    print(json.dumps({"target": target, "seconds": round(time.monotonic() - began), **told}), flush=True)
    if not passed:
        print(f"  see {folder}", flush=True)
    return passed


def _guided(folder: Path, seconds: int) -> tuple[bool, dict[str, object]]:
    found, examples, log = folder / "found", folder / "examples", folder / "log"
    for each in (found, examples):
        each.mkdir(exist_ok=True)
    for number, example in enumerate(CORPUS[folder.name]):
        (examples / str(number)).write_bytes(example)
    options = [f"-max_total_time={seconds}", f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MB}"]
    options += [f"-max_len={INPUT_BYTES}", f"-artifact_prefix={folder}/", str(found), str(examples)]
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", folder.name, *options], stdout=file, stderr=file
        )
    states = STATE.findall(log.read_text(errors="replace"))
    told: dict[str, object] = {"exit": done.returncode}
    if states:
        first, last = states[0], states[-1]
        told |= {"inputs": int(last[0]), "coverage": int(last[1]), "memory_mb": [int(first[2]), int(last[2])]}
    return done.returncode == 0, told


if __name__ == "__main__":
    sys.exit(main())
