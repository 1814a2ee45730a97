"""A process runs on uvloop where it is there."""

import logging
import sys

import pytest

from geomq.broker.sockets.loops import loop_factory


def test_uvloop_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    uvloop = pytest.importorskip("uvloop")
    factory = loop_factory()
    assert factory is not None
    loop = factory()
    assert isinstance(loop, uvloop.Loop)
    loop.close()
    monkeypatch.setitem(sys.modules, "uvloop", None)
    caplog.set_level(logging.INFO, logger="geomq.broker")
    assert loop_factory() is None
    assert "pip install" in caplog.text
    assert "[fast]" in caplog.text
