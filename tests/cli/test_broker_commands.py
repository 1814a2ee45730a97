"""`geomq broker`, `passwd` and `import-mosquitto` from the shell."""

import resource
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from geomq.broker.config.load import load_config
from geomq.broker.security.passwords import load_passwords
from geomq.cli.broker import broker
from geomq.cli.import_mosquitto import import_mosquitto
from geomq.cli.passwd import passwd
from geomq.cli.pub import pub
from geomq.cli.sub import sub

GEOMQ = str(Path(sys.executable).parent / "geomq")


def geomq(*arguments: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GEOMQ, *arguments], input=stdin, capture_output=True, text=True, timeout=120, cwd=cwd, check=False
    )


def test_the_printed_config_starts_the_same_broker(tmp_path: Path) -> None:
    first = geomq("broker", "--print-config", "-p", "0", cwd=tmp_path)
    assert first.returncode == 0
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "geomq.toml"
    file.write_text(first.stdout)
    assert load_config(file).listeners[0].bind_port == 0
    assert geomq("broker", "-c", str(file), "--print-config").stdout == first.stdout


def test_a_mistake_in_the_config_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "geomq.toml"
    file.write_text("[limits]\nqueue_message_max = 5\n")
    done = geomq("broker", "-c", str(file))
    assert done.returncode == 2
    assert done.stderr == (
        f"geomq: {file}: [limits]: unknown key 'queue_message_max'; did you mean 'queue_messages_max'?\n"
    )


def test_a_port_in_use_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = geomq("broker", "-p", str(taken.getsockname()[1]), cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot listen on localhost:" in done.stderr
    assert list(tmp_path.iterdir()) == []


BROKEN = [
    ('[routing]\nstrategy = "dth"', "unknown strategy 'dth'"),
    ('[auth]\nacl_file = "broken"', "broken"),
    ('[auth]\npassword_file = "broken"', "broken"),
    ('[[listeners]]\nkind = "tls"\nport = 1\ncertfile = "broken"\nkeyfile = "broken"', "listener"),
    ('[federation]\nport = 1\nkey_file = "broken"', "broken is shorter than 16 bytes"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN)
def test_a_printed_config_is_checked_as_if_it_were_started(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "geomq.toml"
    file.write_text(text)
    (tmp_path / "broken").write_text("nonsense\n")
    printed, started = geomq("broker", "-c", str(file), "--print-config"), geomq("broker", "-c", str(file))
    assert (printed.returncode, started.returncode) == (2, 2)
    assert words in printed.stderr
    assert printed.stderr.count("\n") == 1
    assert printed.stderr.removeprefix("geomq: ").strip() in started.stderr
    assert printed.stdout.startswith("#")


def test_passwords_are_set_changed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert geomq("passwd", "--iterations", "10", str(file), "alice", stdin="first\n").returncode == 0
    assert geomq("passwd", "--iterations", "10", str(file), "alice", stdin="sécond\n").returncode == 0
    assert geomq("passwd", "--iterations", "10", str(file), "bob", stdin="x").returncode == 0
    users = load_passwords(file)
    assert users.check("alice", "sécond".encode())
    assert geomq("passwd", "--delete", str(file), "alice").returncode == 0
    assert "alice" not in load_passwords(file)
    for arguments, stdin in (
        (["passwd", str(file), "carol"], ""),
        (["passwd", str(file), "a:b"], "x\n"),
        (["passwd", "-D", str(file), "carol"], ""),
        (["passwd", str(tmp_path / "none" / "users"), "carol"], "x\n"),
    ):
        done = geomq(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_mosquitto_conf_becomes_a_config_that_loads(tmp_path: Path) -> None:
    conf = tmp_path / "mosquitto.conf"
    conf.write_text("listener 1884\nallow_anonymous true\nmax_queued_messages 10\nmax_keepalive soon\n")
    done = geomq("import-mosquitto", str(conf), cwd=tmp_path)
    assert done.returncode == 0
    assert "mosquitto.conf:4: max_keepalive soon: is not a number\n" in done.stderr
    config = load_config(tmp_path / "geomq.toml")
    assert (config.listeners[0].bind_port, config.limits.queue_messages_max) == (1884, 10)
    again = geomq("import-mosquitto", str(conf), cwd=tmp_path)
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert geomq("import-mosquitto", str(conf), "--force", cwd=tmp_path).returncode == 0
    assert geomq("import-mosquitto", str(conf), "-o", "-").stdout == (tmp_path / "geomq.toml").read_text()


def test_nothing_is_written_that_might_open_access_unless_asked_for(tmp_path: Path) -> None:
    conf = tmp_path / "mosquitto.conf"
    conf.write_text("listener 1884\nallow_anonymous true\nplugin x.so\npsk_file keys\n")
    for output in ("geomq.toml", "-"):
        done = geomq("import-mosquitto", str(conf), "-o", output, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[:2] == [
            "mosquitto.conf:3: plugin x.so: plugins are not supported",
            "mosquitto.conf:4: psk_file keys: pre-shared keys are not supported",
        ]
        assert "nothing is written" in done.stderr
    assert not (tmp_path / "geomq.toml").exists()
    done = geomq("import-mosquitto", str(conf), "--lossy", cwd=tmp_path)
    assert done.returncode == 0
    assert "plugin x.so" in done.stderr
    assert load_config(tmp_path / "geomq.toml").listeners[0].bind_port == 1884


def test_help_answers_quickly() -> None:
    """By the processor's time, which other programs do not use up."""
    assert min(_cpu_s("--help") for _ in range(3)) < 0.5


@pytest.mark.parametrize("command", [broker, import_mosquitto, passwd, pub, sub])
def test_every_command_explains_itself_with_examples(command: click.Command) -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert f"geomq {command.name} " in result.output


def _cpu_s(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert geomq(*arguments).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
