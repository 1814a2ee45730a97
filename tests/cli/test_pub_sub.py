"""`geomq pub` and `geomq sub` as a person uses them, through a real broker and a real shell."""

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from geomq.broker.local_federation import free_ports
from geomq.cli.mqtt_options import fence_argument
from geomq.errors import UsageError

GEOMQ = [str(Path(sys.executable).parent / "geomq")]


@pytest.fixture(scope="session")
def mosquitto_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed: pub and sub are not tested against it")
    folder: Path = tmp_path_factory.mktemp("mosquitto")
    (port,) = free_ports(1)
    (folder / "conf").write_text(f"user root\nallow_anonymous true\nlistener {port} 127.0.0.1\n")
    process = subprocess.Popen([binary, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def geomq(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*GEOMQ, *arguments], input=stdin, capture_output=True, timeout=120, check=False)


class Subscriber:
    """A running `geomq sub`; `ready` once the broker has its subscription."""

    def __init__(self, port: int, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*GEOMQ, "sub", "-H", "127.0.0.1", "-p", str(port), *arguments], stdout=subprocess.PIPE
        )
        self.lines: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def wait(self) -> list[bytes]:
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self._thread.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()
        return self.lines


def publish_until_read(port: int, subscriber: Subscriber, *arguments: str) -> None:
    """Publish again until the subscriber, which may still be starting, has had enough."""
    end = time.monotonic() + 60
    while subscriber.process.poll() is None and time.monotonic() < end:
        done = geomq("pub", "-H", "127.0.0.1", "-p", str(port), *arguments)
        assert done.returncode == 0, done.stderr


def test_a_published_event_is_printed(mosquitto_port: int) -> None:
    subscriber = Subscriber(mosquitto_port, "-t", "cli/+", "-C", "1", "-v", "-q", "1")
    publish_until_read(mosquitto_port, subscriber, "-t", "cli/a", "-m", "hello", "-q", "1")
    assert subscriber.wait() == [b"cli/a hello\n"]
    assert subscriber.process.returncode == 0


def test_a_terminal_is_not_steered_and_a_pipe_gets_all_bytes(mosquitto_port: int) -> None:
    where = ["-H", "127.0.0.1", "-p", str(mosquitto_port)]
    payload = b"\x1b[2J\ntwo\xff \xc3\xa4"
    assert geomq("pub", *where, "-t", "cli/raw", "-r", "-q", "1", "-f", "-", stdin=payload).returncode == 0
    read = ["sub", *where, "-t", "cli/raw", "-C", "1"]
    assert geomq(*read).stdout == payload + b"\n"
    ours, theirs = pty.openpty()
    try:
        subprocess.run([*GEOMQ, *read], stdout=theirs, timeout=120, check=True)
        assert os.read(ours, 1000).strip() == b"\\x1b[2J\\ntwo\\xff \xc3\xa4"
    finally:
        os.close(ours)
        os.close(theirs)


def test_json_shows_payload_properties_and_places(mosquitto_port: int, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"\xff\x00")
    subscriber = Subscriber(mosquitto_port, "-t", "cli/json", "-C", "1", "--json", "--within", "52,13,5km")
    publish_until_read(
        mosquitto_port, subscriber, "-t", "cli/json", "-f", str(tmp_path / "payload"),
        "--from", "52.5,13.4", "--to", "52.5,13.4,500", "--property", "k=v=w", "--expiry", "60",
    )  # fmt: skip
    (line,) = subscriber.wait()
    event = json.loads(line)
    assert event["topic"] == "cli/json"
    assert event["payload_base64"] == "/wA="
    assert event["location"] == [52.5, 13.4]
    assert event["user"] == [["geo-location", "52.5,13.4"], ["geo-fence", "geo:52.5,13.4;u=500.000"], ["k", "v=w"]]


def test_lines_retained_and_deleted(mosquitto_port: int) -> None:
    where = ["-H", "127.0.0.1", "-p", str(mosquitto_port)]
    done = geomq("pub", *where, "-t", "cli/kept", "-l", "-r", "-q", "2", "--json", stdin=b"one\ntwo\n")
    assert json.loads(done.stdout) == {"topic": "cli/kept", "events": 2, "bytes": 6, "qos": 2, "fence": None}
    assert geomq("sub", *where, "-t", "cli/kept", "-C", "1").stdout == b"two\n"
    assert geomq("sub", *where, "-t", "cli/kept", "-R", "-C", "1", "-W", "0.3").returncode == 27
    assert geomq("pub", *where, "-t", "cli/kept", "-n", "-r", "-q", "1").returncode == 0
    assert geomq("sub", *where, "-t", "cli/kept", "-C", "1", "-W", "0.3").returncode == 27


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pub", "-t", "a"], b"geomq: give one of --message, --file, --lines or --null\n"),
        (["pub", "-t", "a", "-m", "x", "--property", "k"], b"geomq: --property 'k' is not of the form KEY=VALUE\n"),
        (["pub", "-t", "a", "-m", "x", "-p", "1"], b"geomq: cannot connect to localhost:1: "),
        (["sub", "-t", "a", "--key", "k"], b"geomq: --key needs --cert\n"),
        (["sub", "-t", "a", "--cafile", "/none"], b"geomq: cannot use /none: "),
        (["sub", "-t", "a", "--within", "@/none"], b"geomq: cannot read the fence from /none: "),
        (["sub", "-t", "a", "--within", "52,13"], b"geomq: fence text is neither WKT (POLYGON, MULTIPOLYGON), nor "),
        (["pub", "-t", "a", "-m", "x", "--to", "geo:1,2"], b"geomq: "),
        (["sub", "-t", "a", "--at", "here"], b"geomq: location 'here' is neither 'lat,lon' nor a geo URI\n"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], message: bytes) -> None:
    done = geomq(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("qos", ["0", "1"])
def test_a_topic_that_no_broker_takes_is_one_line(mosquitto_port: int, qos: str) -> None:
    done = geomq("pub", "-t", "", "-m", "x", "-q", qos, "-H", "127.0.0.1", "-p", str(mosquitto_port))
    assert (done.returncode, done.stderr) == (2, b"geomq: cannot publish: topic is empty\n")


def test_what_is_no_fence_is_told_the_short_form() -> None:
    for text in ("52,13", "here", "geo:1,2"):
        with pytest.raises(UsageError, match="; a circle is written lat,lon,radius, such as"):
            fence_argument(text)


def test_fences_on_the_command_line(tmp_path: Path) -> None:
    assert fence_argument(None) is None
    assert fence_argument("52.5, 13.4, 5km") == "geo:52.5,13.4;u=5000.000"
    assert fence_argument("-1,2,300m") == fence_argument("-1,2,300") == "geo:-1,2;u=300.000"
    assert fence_argument("POLYGON((0 0,1 0,1 1,0 0))") == "POLYGON((0 0,1 0,1 1,0 0))"
    (tmp_path / "area").write_text("geo:1,2;u=3\n")
    assert fence_argument(f"@{tmp_path}/area") == "geo:1,2;u=3\n"
    with pytest.raises(UsageError):
        fence_argument("1,2,--")
