"""Who may still read when its connection has ended."""

import asyncio
from typing import Any

import pytest

from geomq.broker.connections import endings
from geomq.broker.connections.endings import Endings

pytestmark = pytest.mark.anyio


class Wire:
    """A transport that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def close(self) -> None:
        self.asked.append("close")

    def abort(self) -> None:
        self.asked.append("abort")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_of_too_many_the_oldest_that_is_there_is_cut_off() -> None:
    ending, wires = Endings(asyncio.get_running_loop(), 2), [Wire() for _ in range(4)]
    ending.begin(0, wires[0], reads=True)
    ending.over(0)
    for number in (1, 2, 3):
        ending.begin(number, wires[number], reads=True)
    assert [wire.asked for wire in wires] == [["close"], ["close", "abort"], ["close"], ["close"]]
    assert len(ending) == 2
    ending.begin(9, silent := Wire(), reads=False)
    assert silent.asked == ["abort"]
    ending.allow(None)
    ending.begin(4, Wire(), reads=True)
    assert len(ending) == 3


async def test_none_is_there_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "FAREWELL_S", 0.05)
    ending, wire = Endings(asyncio.get_running_loop(), None), Wire()
    ending.begin(0, wire, reads=True)
    await asyncio.sleep(0.2)
    assert wire.asked == ["close", "abort"]
