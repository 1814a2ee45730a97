"""`geomq advise`: from traces on disk and from running brokers, for people and for programs."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.pipeline.streaming.live import CITIES, geomq_federation, publish, subscribe
from tests.workload.traffic.recorded import scenario_trace

from geomq.cli import main
from geomq.errors import DataError, UsageError
from geomq.mqtt.codec.properties import Properties
from geomq.pipeline.recent import Admin, listen


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
    assert "2 brokers at other locations" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give traces to read"),
        (["missing"], "missing"),
        (["--live", "ftp://x", "--seconds", "1"], "not the address of an admin API"),
        (["--live", "127.0.0.1:1", "--seconds", "1"], "did not answer"),
        (["--engine", "local", "--master", "x", "t"], "--master needs"),
    ],
)
def test_what_cannot_be_advised_on_is_one_line(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["advise", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_running_federation_is_listened_to(tmp_path: Path) -> None:
    with geomq_federation(tmp_path / "brokers") as members:
        for name, (port, _) in members.items():
            subscribe(port, f"reader-{name}", CITIES[name], "s/#", fence=f"geo:{CITIES[name]};u=5000")
        over = threading.Event()

        def act() -> None:
            while not over.is_set():
                for name, (port, _) in members.items():
                    publish(port, [(f"s/{name}", b"x" * 20)] * 10, properties=at(CITIES[name]))

        acting = threading.Thread(target=act)
        acting.start()
        try:
            addresses = [f"127.0.0.1:{admin}" for _, admin in members.values()]
            live = [word for address in addresses for word in ("--live", address)]
            wanted = ["--seconds", "5", "--engine", "local", "--samples", "1", "--json"]
            done = CliRunner().invoke(main, ["advise", *live, *wanted])
            partly = listen(addresses[:1], seconds=1, token=None)
        finally:
            over.set()
            acting.join()
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert answer["present"] == "flood_events"
        assert answer["traffic"]["brokers"] == 3
        assert answer["traffic"]["events"] > 0
        # Everybody wants what happens at home only: nothing needs to travel.
        assert answer["costs"]["flood_events"]["messages"] == 2 * answer["traffic"]["events"]
        assert answer["costs"][answer["strategy"]]["messages"] < answer["costs"]["flood_events"]["messages"] / 4
        assert not any("not reached" in note for note in answer["notes"])
        assert "not reached: paris, madrid" in partly.notes
        assert partly.payload_mean == 20.0
        with pytest.raises(DataError, match="answered 404"):
            Admin(addresses[0], None).ask("nothing")


def at(place: str) -> Properties:
    return Properties(user_properties=(("geo-location", place),))


def test_an_admin_address_is_http() -> None:
    with pytest.raises(UsageError):
        Admin("file:///etc/passwd", None)


@pytest.mark.parametrize("answer", [b"[]", b"7", b"{}", b'{"broker": 1}', b"[" * 100_000, b"\xff"])
def test_an_answer_of_something_else_than_an_admin_api_is_one_line(answer: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nobody listens."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        admin = Admin(f"127.0.0.1:{server.server_port}", None)
        try:
            for question in (admin.outline, lambda: admin.state("home"), admin.trace):
                with pytest.raises(DataError, match=r"is not the admin API of a broker"):
                    question()
        finally:
            server.shutdown()
            serving.join()
