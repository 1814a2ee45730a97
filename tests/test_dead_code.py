"""Code that only tests use goes."""

from pathlib import Path

import pytest
from tests.dead_code import Code, python_of

ROOT = Path(__file__).parent.parent
DOORS = frozenset({"pyspark_geomq"})
"""Found by Spark by its name."""

KEPT: dict[str, str] = {
    "geomq.broker.connections.connection.Connection.eof_received": "asyncio calls it",
    "geomq.broker.connections.websocket.WebSocketConnection.eof_received": "asyncio calls it",
    "geomq.pipeline.streaming.jobs.density": "`geomq archive report` finds it by its name",
    "geomq.reproduction.rendezvous.rendezvous.Rendezvous.rewire": "the published protocol lets nodes move, no study",
}
"""What nothing uses and why it stays."""


def code() -> Code:
    found = Code().read(ROOT / "src")
    for path in (ROOT / "bench").glob("*.py"):
        found.read_text(path.read_text())
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for text in python_of(page.read_text()):
            found.read_text(text)
    return found


def test_nothing_is_only_for_tests() -> None:
    unused = set(code().unused(doors=DOORS))
    assert sorted(unused - KEPT.keys()) == [], "nothing but tests uses this: delete it, or say in KEPT why it stays"
    assert sorted(KEPT.keys() - unused) == [], "this is used or gone: take it out of KEPT"


PLANTED = """
from somewhere import Base

USED, UNUSED = 1, 2
__all__ = ["UNUSED", "exported", "reached"]


def reached() -> int:
    return USED


def recursive() -> None:
    recursive()


def exported() -> None: ...


class Held(Base):
    def asked(self) -> int:
        return reached()

    def unasked(self) -> None: ...

    def passed_on(self) -> None:
        self._inner.passed_on()


HELD = Held()
HELD.asked()
"""


def test_what_is_planted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("from planted.module import exported\n__all__ = ['exported']\n")
    (tmp_path / "planted" / "module.py").write_text(PLANTED)
    (tmp_path / "somewhere.py").write_text("class Base: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {path.removeprefix("planted.module.") for path in Code().read(tmp_path).unused()}
    assert found == {"UNUSED", "recursive", "exported", "Held.unasked", "Held.passed_on"}
