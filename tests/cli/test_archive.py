"""`geomq archive`: what is refused, before Spark starts; the work itself is tested with the archive."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from geomq.cli import main
from geomq.workload.traffic.archived_traffic import MARK


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["land", "--brokers", "a:b", "out"], "is not host:port or mqtts://host:port"),
        (["land", "--brokers", "a", "--option", "colour", "out"], "is not of the form NAME=VALUE"),
        (["land", "--brokers", "a", "--option", "colour=red", "out"], "option colour is unknown"),
        (["land", "--brokers", "a", "--every", "soon", "out"], "'soon' is not a time such as"),
        (["land", "--brokers", "a", "--admin", "ftp://a", "out"], "not the address of an admin API"),
        (["land", "--brokers", "a", "--admin", "a", "--token-file", "missing", "out"], "cannot read missing"),
        (["compact", "missing"], "missing is not an archive"),
        (["compact", "--date", "May", "there"], "--date 'May' is not a day such as"),
        (["report", "rates", "--window", "long", "there"], "'long' is not a time such as"),
        (["report", "rates", "missing"], "missing is not an archive"),
        (["report", "nothing", "missing"], "is not one of"),
    ],
)
def test_what_cannot_be_archived_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / MARK).touch()
    done = CliRunner().invoke(main, ["archive", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
