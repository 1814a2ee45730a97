"""Ctrl-C is one line and the exit code of a program that was interrupted."""

import pytest

from geomq.cli.interrupt import INTERRUPTED, quiet_interrupt


def test_an_interrupt_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, quiet_interrupt():
        raise KeyboardInterrupt
    assert ended.value.code == INTERRUPTED == 130
    assert capsys.readouterr().err == "geomq: interrupted\n"
