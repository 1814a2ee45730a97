"""Own errors come out of Spark's processes without the way they came; others, and other processes, as ever."""

import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from geomq.errors import DataError
from geomq.pipeline.streaming.plainly import plainly, yielded_plainly

HIDE = "SPARK_HIDE_TRACEBACK"


@plainly
def refuse(error: Exception) -> None:
    raise error


@yielded_plainly
def refuse_later(error: Exception) -> Iterator[int]:
    yield 1
    raise error


def read(error: Exception) -> None:
    list(refuse_later(error))


@pytest.mark.parametrize("call", [refuse, read])
@pytest.mark.parametrize(
    ("process", "error", "hidden"),
    [
        ("pyspark.daemon", DataError("bad"), True),
        ("pyspark.daemon", ValueError("bad"), False),
        ("my.program", DataError("bad"), False),
    ],
)
def test_only_own_errors_in_processes_of_spark_are_told_shortly(
    call: Callable[[Exception], None], process: str, error: Exception, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDE, "")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=process), raising=False)
    with pytest.raises(type(error), match="bad"):
        call(error)
    assert bool(os.environ[HIDE]) == hidden
