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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from geomq.broker.local_federation import free_ports
from geomq.cli.mqtt_options import fence_argument
from geomq.errors import UsageError

GEOMQ = [str(Path(sys.executable).parent / "geomq")]


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
        (["pub", "-t", "a"], b"geomq: give one of --message, --file, --lines, --stdin or --null\n"),
        (["sub", "-t", "a", "-c"], b"geomq: --keep-session needs --id\n"),
        (["sub", "-t", "a", "-T", "a/#/b"], b"geomq: --filter-out: filter 'a/#/b': '#' must be the whole last level\n"),
        (["sub", "-t", "a", "-F", "%z"], b"geomq: --format: '%z' says nothing of an event; %% is a %\n"),
        (["pub", "-t", "a", "-m", "x", "--property", "k"], b"geomq: --property 'k' is not of the form KEY=VALUE\n"),
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


class TestHabits:
    """What people are used to from mosquitto_pub and mosquitto_sub."""

    def test_h_is_the_host_where_a_name_follows_and_help_where_none_does(self, mosquitto_port: int) -> None:
        where = ["-h", "localhost", "-p", str(mosquitto_port)]
        assert geomq("pub", *where, "-t", "habit/host", "-m", "x", "-r", "-q", "1").returncode == 0
        assert geomq("sub", *where, "-t", "habit/host", "-C", "1").stdout == b"x\n"
        for arguments in (["pub", "-h"], ["sub", "-h", "-t", "a"], ["pub", "--help"]):
            done = geomq(*arguments)
            assert done.returncode == 0
            assert done.stdout.startswith(b"Usage: geomq ")

    def test_all_of_the_input_is_one_payload(self, mosquitto_port: int) -> None:
        where = ["-h", "localhost", "-p", str(mosquitto_port)]
        assert geomq("pub", *where, "-t", "habit/all", "-s", "-r", "-q", "1", stdin=b"one\ntwo\n").returncode == 0
        assert geomq("sub", *where, "-t", "habit/all", "-C", "1", "-N").stdout == b"one\ntwo\n"

    def test_topics_are_left_out_and_retained_events_alone_are_printed(self, mosquitto_port: int) -> None:
        where = ["-h", "localhost", "-p", str(mosquitto_port)]
        for topic in ("habit/out/a", "habit/out/b", "habit/out/c"):
            assert geomq("pub", *where, "-t", topic, "-m", topic[-1], "-r", "-q", "1").returncode == 0
        done = geomq(
            "sub", *where, "-t", "habit/out/#", "-T", "habit/+/a", "-T", "habit/out/b", "-C", "1", "--retained-only"
        )
        assert done.stdout == b"c\n"
        assert geomq("sub", *where, "-t", "habit/out/#", "-R", "-C", "1", "-W", "0.3").returncode == 27

    def test_a_session_is_kept_from_one_run_to_the_next(self, mosquitto_port: int) -> None:
        where = ["-h", "localhost", "-p", str(mosquitto_port)]
        kept = ["sub", *where, "-t", "habit/kept", "-q", "1", "-i", "keeper", "-c"]
        assert geomq(*kept, "-E").returncode == 0
        assert geomq("pub", *where, "-t", "habit/kept", "-m", "meanwhile", "-q", "1").returncode == 0
        assert geomq(*kept, "-C", "1", "-W", "20").stdout == b"meanwhile\n"
        assert geomq(*kept[:-1], "-E").returncode == 0  # begins anew and leaves nothing behind
        assert geomq("pub", *where, "-t", "habit/kept", "-m", "lost", "-q", "1").returncode == 0
        assert geomq(*kept, "-C", "1", "-W", "0.3").returncode == 27

    def test_a_subscriber_connects_again(self) -> None:
        with broker_process() as (port, restart):
            subscriber = Subscriber(port, "-t", "habit/again", "-C", "2", "-q", "1")
            while not subscriber.lines:
                assert geomq("pub", "-p", str(port), "-t", "habit/again", "-m", "x", "-q", "1").returncode == 0
            restart()
            publish_until_read(port, subscriber, "-t", "habit/again", "-m", "y", "-q", "1")
            assert subscriber.wait() == [b"x\n", b"y\n"]
            assert subscriber.process.returncode == 0


@contextmanager
def broker_process() -> Iterator[tuple[int, Callable[[], None]]]:
    """A Mosquitto that can be started anew at the same port."""
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed: nothing to connect to again")
    (port,) = free_ports(1)
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        while running:
            running[-1].kill()
            running.pop().wait(10)
        running.append(subprocess.Popen([binary, "-p", str(port)], stderr=subprocess.DEVNULL))
        wait_for(port)

    start()
    try:
        yield port, start
    finally:
        running[-1].kill()
        running[-1].wait(10)


class TestExitCodes:
    """Programs can tell what went wrong."""

    def test_a_broker_that_cannot_be_reached_is_3(self) -> None:
        done = geomq("pub", "-t", "a", "-m", "x", "-p", "1")
        assert done.returncode == 3
        assert done.stderr.startswith(b"geomq: cannot connect to localhost:1: ")

    def test_a_broker_that_does_not_let_the_client_in_is_4(self, tmp_path: Path) -> None:
        with geomq_broker(tmp_path, 'anonymous = "never"') as port:
            for command in (["pub", "-m", "x"], ["sub"]):
                done = geomq(*command, "-t", "a", "-p", str(port), "-h", "127.0.0.1")
                assert (done.returncode, done.stderr.count(b"\n")) == (4, 1)
                assert b"the broker refused to connect" in done.stderr

    def test_a_refused_request_is_5(self, tmp_path: Path) -> None:
        (tmp_path / "acl").write_text("topic read #\n")
        with geomq_broker(tmp_path, f'acl_file = "{tmp_path}/acl"') as port:
            done = geomq("pub", "-t", "a", "-m", "x", "-q", "1", "-p", str(port), "-h", "127.0.0.1")
            assert (done.returncode, done.stderr.count(b"\n")) == (5, 1)
            assert b"the broker refused to publish" in done.stderr

    @pytest.mark.parametrize(("said", "code"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", 5), (b"", 27)])
    def test_what_is_no_mqtt_is_5_and_no_answer_27(self, said: bytes, code: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            answering = threading.Thread(target=answer_once, args=(server, said))
            answering.start()
            done = geomq("pub", "-t", "a", "-m", "x", "-p", str(port), "-h", "127.0.0.1", "--timeout", "0.5")
            answering.join(60)
        assert (done.returncode, done.stderr.count(b"\n")) == (code, 1)


def answer_once(server: socket.socket, said: bytes) -> None:
    """Say so to the first that connects, and listen until it goes."""
    connection, _ = server.accept()
    with connection:
        connection.sendall(said)
        with suppress(ConnectionError):
            while connection.recv(4_096):
                pass


@contextmanager
def geomq_broker(folder: Path, auth: str) -> Iterator[int]:
    """A broker of ours with these rules."""
    (port,) = free_ports(1)
    listener = f'[[listeners]]\nhost = "127.0.0.1"\nport = {port}\n'
    (folder / "geomq.toml").write_text(f"{listener}[auth]\n{auth}\n[persistence]\nenabled = false\n")
    process = subprocess.Popen([*GEOMQ, "broker", "-c", str(folder / "geomq.toml")], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def wait_for(port: int) -> None:
    """Until something listens there."""
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end, "nothing listens"
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "expected"), [("geomq su", "plain,sub"), ("geomq sub --retained", "--retained-only")]
)
def test_a_shell_completes_commands_and_options(words: str, expected: str) -> None:
    asked = {"_GEOMQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(GEOMQ, capture_output=True, text=True, timeout=60, env=os.environ | asked, check=True)
    assert expected in done.stdout
