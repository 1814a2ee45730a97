"""Who has its turn on the event loop, without a loop or a clock of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

from geomq.broker.state.turns import ROUND_NS, TURN_NS, Turns


class Stage:
    """A loop of rounds and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000
        self.readings = 0
        self.ready: list[Callable[[], object]] = []
        self.done: list[str] = []
        loop: Any = self
        self.turns = Turns(loop, self.clock_ns)

    def clock_ns(self) -> int:
        self.readings += 1
        return self.now_ns

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.ready.append(callback)

    def run_once(self) -> None:
        due, self.ready = self.ready, []
        for callback in due:
            callback()

    def work(self, name: str, ns: int) -> None:
        self.done.append(name)
        self.now_ns += ns


def test_a_turn_lasts_from_its_first_step_until_its_time_is_up() -> None:
    stage = Stage()
    stage.turns.begin()
    assert stage.readings == 0
    assert not stage.turns.over()
    stage.now_ns += TURN_NS - 1
    assert not stage.turns.over()
    stage.now_ns += 1
    assert stage.turns.over()
    stage.turns.begin()
    assert not stage.turns.over()


def test_those_who_wait_go_on_in_their_order_and_the_loop_turns_between_rounds() -> None:
    stage = Stage()
    for name in "abcdef":
        stage.turns.wait(partial(stage.work, name, ROUND_NS // 3 + 1))
    assert stage.done == []
    assert len(stage.ready) == 1
    stage.run_once()
    assert stage.done == ["a", "b", "c"]
    stage.run_once()
    assert stage.done == [*"abcdef"]
    assert not stage.ready
    assert not len(stage.turns)


def test_who_waits_again_has_its_next_turn_after_all_others() -> None:
    stage = Stage()

    def greedy() -> None:
        stage.work("greedy", TURN_NS)
        stage.turns.wait(greedy)

    stage.turns.wait(greedy)
    stage.turns.wait(partial(stage.work, "a", 1))
    stage.run_once()
    assert stage.done == ["greedy", "a"]
    assert len(stage.ready) == 1
    stage.turns.wait(partial(stage.work, "b", 1))
    stage.run_once()
    assert stage.done == ["greedy", "a", "greedy", "b"]


def test_a_step_that_fails_takes_nothing_from_those_behind_it() -> None:
    stage = Stage()

    def fail() -> None:
        raise ValueError("a fault")

    stage.turns.wait(fail)
    stage.turns.wait(partial(stage.work, "a", 1))
    try:
        stage.run_once()
    except ValueError:
        stage.done.append("failed")
    stage.run_once()
    assert stage.done == ["failed", "a"]
