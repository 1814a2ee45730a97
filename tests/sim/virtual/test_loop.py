"""The loop owns the clock, and runs only what belongs to the living."""

import asyncio

import pytest
from tests.sim.virtual.stage import in_process, play, process, virtual

from geomq.sim.virtual.loop import START_S, Stuck


def test_waiting_takes_no_time_and_moves_the_clock() -> None:
    loop = virtual()

    async def story() -> list[float]:
        seen = []
        for _ in range(3):
            await asyncio.sleep(3_600.0)
            seen.append(loop.time() - START_S)
        return seen

    assert play(loop, story) == pytest.approx([3_600, 7_200, 10_800], abs=0.1)


def test_callbacks_run_in_the_order_of_their_time_and_then_of_their_making() -> None:
    loop = virtual()

    async def story() -> list[str]:
        ran: list[str] = []
        loop.call_later(2.0, ran.append, "later")
        loop.call_at(START_S + 1.0, ran.append, "first")
        loop.call_at(START_S + 1.0, ran.append, "second")
        loop.call_soon(ran.append, "now")
        cancelled = loop.call_later(1.5, ran.append, "never")
        cancelled.cancel()
        await asyncio.sleep(3.0)
        return ran

    assert play(loop, story) == ["now", "first", "second", "later"]


def test_a_run_in_which_nothing_can_happen_any_more_ends() -> None:
    loop = virtual()

    async def story() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="nothing is scheduled"):
        play(loop, story)


def test_what_a_dead_process_had_scheduled_never_runs() -> None:
    loop = virtual()
    doomed, ran = process(loop), list[str]()

    async def work() -> None:
        while True:
            await asyncio.sleep(1.0)
            ran.append("worked")

    async def story() -> None:
        in_process(doomed, lambda: loop.create_task(work()))
        in_process(doomed, lambda: loop.call_later(2.2, ran.append, "timer"))
        await asyncio.sleep(2.1)
        doomed.kill()
        await asyncio.sleep(10.0)

    play(loop, story)
    assert ran == ["worked", "worked"]


def test_a_stopped_process_does_later_what_it_missed() -> None:
    loop = virtual()
    stopped, ran = process(loop), list[tuple[str, int]]()

    def note(what: str) -> None:
        ran.append((what, round(loop.now - START_S)))

    async def story() -> None:
        for second in (1, 2, 6):
            in_process(stopped, lambda at=second: loop.call_later(at, note, f"due {at}"))  # type: ignore[misc]
        stopped.stopped = True
        await asyncio.sleep(4.0)
        loop.resume(stopped)
        await asyncio.sleep(4.0)

    play(loop, story)
    assert ran == [("due 1", 4), ("due 2", 4), ("due 6", 6)]


def test_an_exception_that_nobody_caught_is_noted_with_the_process_it_happened_in() -> None:
    loop = virtual()
    owner = process(loop)

    async def story() -> None:
        in_process(owner, lambda: loop.call_soon(int, "x"))
        await asyncio.sleep(1.0)

    play(loop, story)
    assert len(loop.trouble) == 1
    assert loop.trouble[0].startswith("b: ")
    assert "ValueError" in loop.trouble[0]
