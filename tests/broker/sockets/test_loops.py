"""A process runs on uvloop where it is there."""

import sys

import pytest

from geomq.broker.sockets.loops import loop_factory


def test_uvloop_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = pytest.importorskip("uvloop")
    factory = loop_factory()
    assert factory is not None
    loop = factory()
    assert isinstance(loop, uvloop.Loop)
    loop.close()
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is None
