"""Processes die at the very point that was planned."""

from inspect import CORO_CLOSED, getcoroutinestate

import pytest

from geomq.sim.virtual.loop import make_loop
from geomq.sim.virtual.network import Network
from geomq.sim.virtual.processes import Crashed, Process


def test_a_process_dies_at_the_planned_point_of_that_kind() -> None:
    died: list[str] = []
    doomed = Process("b", lambda process: died.append(process.name))
    doomed.kill_at("disk", 3)
    for _ in range(10):
        doomed.reach("write")
        doomed.reach("callback")
    doomed.reach("disk")
    doomed.reach("disk")
    with pytest.raises(Crashed):
        doomed.reach("disk")
    assert died == ["b"]
    assert not doomed.alive


def test_the_dead_do_nothing_more_and_die_once() -> None:
    died: list[str] = []
    doomed = Process("b", lambda process: died.append(process.name))
    doomed.kill()
    doomed.kill()
    with pytest.raises(Crashed):
        doomed.reach("write")
    assert died == ["b"]


def test_no_handler_of_exceptions_stops_a_crash() -> None:
    doomed = Process("b", lambda _process: None)
    doomed.kill_at("write", 1)

    def careful() -> None:
        try:
            doomed.reach("write")
        except Exception:
            pytest.fail("caught")

    with pytest.raises(Crashed):
        careful()


def test_a_task_that_had_not_begun_is_closed_with_its_process() -> None:
    async def later() -> None:
        """Never begins."""

    loop = make_loop(Network(0, {}, frozenset()))
    doomed = Process("b", lambda _process: None)
    coroutine = later()
    doomed.context().run(loop.create_task, coroutine)
    doomed.kill()
    assert getcoroutinestate(coroutine) == CORO_CLOSED
