"""`geomq archive`: what is refused, before Spark starts; the work itself is tested with the archive."""

import pytest
from click.testing import CliRunner

from geomq.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["land", "--brokers", "a:b", "out"], "does not read host:port"),
        (["land", "--brokers", "a", "--option", "colour", "out"], "does not read NAME=VALUE"),
        (["land", "--brokers", "a", "--option", "colour=red", "out"], "option colour is unknown"),
        (["compact", "missing"], "missing is no archive"),
        (["report", "rates", "missing"], "missing is no archive"),
        (["report", "nothing", "missing"], "is not one of"),
    ],
)
def test_what_cannot_be_archived_is_one_line(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["archive", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
