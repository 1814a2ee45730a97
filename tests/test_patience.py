"""The clock of the tests' event loop: it counts time in which the loop could work, and no other."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.patience import PatientLoop, run

STALL_S = 0.6


async def answered_in_time(within_s: float) -> bytes:
    """What an echo in the same loop answers, while the process is held up without using the processor."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(9))
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            writer.write(b"in time")
            reading = asyncio.ensure_future(asyncio.wait_for(reader.read(9), within_s))
            await asyncio.sleep(0)
            time.sleep(STALL_S)
            return await reading
        finally:
            writer.close()


def test_a_time_limit_does_not_pass_while_the_process_stands_still() -> None:
    assert run(answered_in_time(0.2)) == b"in time"
    with asyncio.Runner() as usual, pytest.raises(TimeoutError):
        usual.run(answered_in_time(0.2))


@pytest.mark.parametrize("use_up", [time.sleep, lambda s: None], ids=["held up", "at ease"])
def test_pauses_last_at_least_as_long_as_asked_for(use_up: Callable[[float], Any]) -> None:
    async def pause() -> float:
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.05, use_up, 0.2)
        await asyncio.sleep(0.3)
        return time.monotonic() - began

    assert run(pause()) >= 0.3


def test_work_counts() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        began, until = loop.time(), time.thread_time() + 0.2
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return loop.time() - began

    assert run(work()) >= 0.2


def test_the_tests_run_on_it(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    assert anyio_backend[1]["loop_factory"] is PatientLoop
