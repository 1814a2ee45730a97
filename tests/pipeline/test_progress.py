"""How far Spark is, on a terminal only."""

import sys
from io import StringIO
from typing import Any, cast

import pytest

from geomq.pipeline.progress import in_words, spark_progress


def test_a_stage_is_over_when_a_later_one_has_begun() -> None:
    assert in_words({}) == "0/0 tasks"
    assert in_words({3: (1, 2000), 4: (5, 10)}) == "2,005/2,010 tasks"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "said"), [(Terminal(), "\r\x1b[K"), (StringIO(), "")])
def test_a_terminal_is_left_clean_and_a_pipe_alone(
    stream: StringIO, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with spark_progress(cast(Any, None), "Evaluating"):
        pass
    assert stream.getvalue() == said
