"""A running broker's admin API, asked by schemathesis what its own OpenAPI description promises."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from geomq.broker.local_federation import THREE_REGIONS, free_ports, local_configs
from geomq.testbed.processes import BrokerProcess, stoppable

API = "admin as described"
STRATEGY = "disgb_events"
OPTIONS = ("--exclude-checks=positive_data_acceptance", "--warnings=off", "--no-color")
"""What the types allow may still be refused: a broker, a strategy or an area that cannot be."""


def ask_as_described(folder: Path, seconds: int) -> tuple[bool, dict[str, object]]:
    """Ask for so long; whether every answer was as described and the broker still runs. Its log and the questions that
    failed are in the folder then."""
    return asyncio.run(stoppable(_ask(folder, seconds)))


async def _ask(folder: Path, seconds: int) -> tuple[bool, dict[str, object]]:
    config = next(iter(local_configs(THREE_REGIONS[:1], STRATEGY, first_port=free_ports(1)[0]).values()))
    with tempfile.TemporaryDirectory(prefix="geomq-fuzz-") as data:
        broker = BrokerProcess(config, Path(data))
        async with broker:
            url = f"http://127.0.0.1:{broker.admin_port}/openapi.json"
            with (folder / "log").open("w") as log:
                words = [sys.executable, "-m", "schemathesis.cli", "run", url, f"--max-time={seconds}", *OPTIONS]
                done = await asyncio.to_thread(subprocess.run, words, cwd=data, stdout=log, stderr=log)
            alive = broker.running
        (folder / "broker.log").write_text(broker.log)
    crashed = "Traceback" in (folder / "broker.log").read_text()
    return done.returncode == 0 and alive and not crashed, {"exit": done.returncode, "broker runs": alive}
