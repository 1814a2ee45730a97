"""`geomq advise`: from traces on disk and from running brokers, for people and for programs."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.pipeline.streaming.live import await_port, free_port, publish
from tests.workload.recorded import scenario_trace

from geomq.cli import main
from geomq.errors import DataError, UsageError
from geomq.mqtt.properties import Properties
from geomq.pipeline.recent import Admin, listen


@pytest.mark.timeout(900)
def test_advice_for_programs_and_for_people(tmp_path: Path) -> None:
    trace = str(scenario_trace(tmp_path, "open", clients=150, seconds=120))
    done = CliRunner().invoke(main, ["advise", "--engine", "local", "--samples", "1", "--json", trace])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["strategy"] == "disgb_subscriptions"
    assert answer["present"] == "flood_events"
    assert answer["saved"]["messages"] > 0
    assert answer["config"] == ["[routing]", 'strategy = "disgb_subscriptions"']
    shown = CliRunner().invoke(main, ["advise", "--engine", "local", "--samples", "1", "--place", "2", trace])
    assert "Use disgb_subscriptions instead of flood_events" in shown.stdout
    assert "2 brokers at other places" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give traces to read"),
        (["missing"], "missing"),
        (["--live", "ftp://x", "--seconds", "1"], "no address of an admin API"),
        (["--live", "127.0.0.1:1", "--seconds", "1"], "cannot be asked"),
        (["--engine", "local", "--master", "x", "t"], "--master needs"),
    ],
)
def test_what_cannot_be_advised_on_is_one_line(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["advise", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


CONFIG = """\
[broker]
name = "berlin"
location = "52.5,13.4"
data_dir = "{folder}/data"
[[listeners]]
host = "127.0.0.1"
port = {port}
[admin]
enabled = true
port = {admin}
[routing]
strategy = "flood_events"
[federation]
host = "127.0.0.1"
port = {links}
key_file = "{folder}/key"
[[peers]]
name = "paris"
address = "127.0.0.1:{nobody}"
location = "48.86,2.35"
[log]
level = "error"
"""


@pytest.mark.timeout(120)
def test_running_brokers_are_listened_to(tmp_path: Path) -> None:
    port, admin, links, nobody = (free_port() for _ in range(4))
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "key").chmod(0o600)
    text = CONFIG.format(folder=tmp_path, port=port, admin=admin, links=links, nobody=nobody)
    (tmp_path / "geomq.toml").write_text(text)
    broker = subprocess.Popen([sys.executable, "-m", "geomq", "broker", "-c", str(tmp_path / "geomq.toml")])
    try:
        await_port(port, broker)
        await_port(admin, broker)
        place = Properties(user_properties=(("geo-location", "52.5,13.4"), ("geo-fence", "geo:52.5,13.4;u=1000")))

        def act() -> None:
            time.sleep(1.5)
            publish(port, [("s/1", b"x" * 20)] * 50, properties=place)

        acting = threading.Thread(target=act)
        acting.start()
        traffic = listen([f"127.0.0.1:{admin}"], seconds=6, token=None)
        acting.join()
        assert traffic.outline.strategy == "flood_events"
        assert [each.name for each in traffic.outline.brokers] == ["berlin", "paris"]
        assert traffic.payload_mean == 20.0
        assert "not asked: paris" in traffic.notes
        with pytest.raises(DataError, match="answers 404"):
            Admin(f"127.0.0.1:{admin}", None).ask("nothing")
    finally:
        broker.terminate()
        broker.wait(20)


def test_an_admin_address_is_http() -> None:
    with pytest.raises(UsageError):
        Admin("file:///etc/passwd", None)
