"""The README's Python example and the tutorial's commands do what they say."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker.federated import until

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.anyio


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_the_readme_example_prints_the_alarm() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS, "adaptive")) as running:
        await until(lambda: running.linked)
        (code,) = blocks(ROOT / "README.md", "python")
        for port, name in ((1883, "paris"), (1885, "columbus")):
            code = code.replace(str(port), str(running.brokers[name].port))
        assert "leave now" in await run(sys.executable, "-c", code)


async def test_the_tutorial_delivers_in_paris_and_not_in_berlin() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS, "adaptive")) as running:
        await until(lambda: running.linked)
        ports = {str(1883 + number): str(broker.port) for number, broker in enumerate(running.brokers.values())}
        commands = [line for block in blocks(ROOT / "docs" / "tutorial.md", "sh") for line in block.splitlines()]
        words = [[ports.get(word, word) for word in shlex.split(line)] for line in commands]
        listen, hello, berlin, weather, rain = [each[1:] for each in words if each[1] in ("sub", "pub")]
        geomq = [sys.executable, "-m", "geomq"]
        first = asyncio.create_task(run(*geomq, *listen, "-C", "1"))
        second = asyncio.create_task(run(*geomq, *weather, "-C", "1"))
        brokers = running.brokers.values()
        await until(lambda: sum(bool(c.session.subscriptions) for b in brokers for c in b.core.clients.values()) == 2)
        for publish in (berlin, hello, rain):
            await run(*geomq, *publish)
        assert (await first).strip() == "hello Paris"
        assert (await second).strip() == "3 mm"
