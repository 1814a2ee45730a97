"""Who may still read when its connection has ended."""

import asyncio
from typing import Any

import pytest

from geomq.broker.connections import endings
from geomq.broker.connections.endings import DRAIN_BYTES_MAX, Endings

pytestmark = pytest.mark.anyio


class Wire:
    """A transport that notes what is asked of it."""

    def __init__(self, *, halves: bool = False, encrypted: bool = False) -> None:
        self.asked: list[str] = []
        self.protocol: Any = None
        self._halves, self._encrypted = halves, encrypted

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return self._halves

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if self._encrypted and name == "ssl_object" else default

    def write_eof(self) -> None:
        self.asked.append("write_eof")

    def resume_reading(self) -> None:
        self.asked.append("read")

    def close(self) -> None:
        self.asked.append("close")

    def abort(self) -> None:
        self.asked.append("abort")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_of_too_many_the_oldest_that_is_there_is_cut_off() -> None:
    ending, wires = Endings(asyncio.get_running_loop(), 2), [Wire() for _ in range(4)]
    ending.begin(wires[0], reads=True)
    wires[0].protocol.connection_lost(None)
    for number in (1, 2, 3):
        ending.begin(wires[number], reads=True)
    assert [wire.asked for wire in wires] == [["close"], ["close", "abort"], ["close"], ["close"]]
    assert len(ending) == 2
    ending.begin(silent := Wire(), reads=False)
    assert silent.asked == ["abort"]
    ending.allow(None)
    ending.begin(Wire(), reads=True)
    assert len(ending) == 3


async def test_none_is_there_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "FAREWELL_S", 0.05)
    ending, wire = Endings(asyncio.get_running_loop(), None), Wire()
    ending.begin(wire, reads=True)
    await asyncio.sleep(0.2)
    assert wire.asked == ["close", "abort"]


@pytest.mark.parametrize(
    ("halves", "encrypted", "first"),
    [(True, False, ["write_eof", "read"]), (False, True, ["read"]), (False, False, ["close"])],
)
async def test_who_was_told_why_may_close_first(
    monkeypatch: pytest.MonkeyPatch, halves: bool, encrypted: bool, first: list[str]
) -> None:
    monkeypatch.setattr(endings, "LINGER_S", 0.05)
    monkeypatch.setattr(endings, "TLS_LINGER_S", 0.05)
    ending, wire = Endings(asyncio.get_running_loop(), None), Wire(halves=halves, encrypted=encrypted)
    ending.begin(wire, reads=True, told=True)
    assert wire.asked == first
    await asyncio.sleep(0.2)
    assert wire.asked == [*first, "close"][: len(first) + (first != ["close"])]


async def test_what_it_sends_meanwhile_is_bounded() -> None:
    ending, wire = Endings(asyncio.get_running_loop(), None), Wire(halves=True)
    ending.begin(wire, reads=True, told=True)
    wire.protocol.data_received(bytes(DRAIN_BYTES_MAX))
    assert "close" not in wire.asked
    wire.protocol.data_received(b"!")
    assert wire.asked[-1] == "close"
    assert not wire.protocol.eof_received()


async def test_all_can_be_closed_at_once() -> None:
    ending, wire = Endings(asyncio.get_running_loop(), None), Wire(halves=True)
    ending.begin(wire, reads=True, told=True)
    ending.close()
    assert wire.asked[-1] == "close"
