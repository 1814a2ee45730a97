"""Password files: Mosquitto's are read, ours are read by Mosquitto's rules, damage is named by line."""

import base64
import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geomq.broker.security.passwords import (
    Passwords,
    delete_user,
    hash_password,
    load_passwords,
    parse_passwords,
    set_password,
)
from geomq.errors import ConfigError, UsageError

MOSQUITTO_LINE = (
    "alice:$7$101$/EjC0B+g93Pcver7$M/AT7XGAdU7oagbRBRSjh+LdpWHPWiT/XOK2jKWMsLq2Mn4YMyFR0af1BRcQCRYWz1ldaBVMy068gO"
    "mXIIU3mA=="
)


def passwords(text: str) -> Passwords:
    return Passwords(parse_passwords(text, name="users"))


def test_a_line_that_mosquitto_wrote_is_understood() -> None:
    users = passwords(f"# users\n\n{MOSQUITTO_LINE}\n")
    assert len(users) == 1
    assert users.check("alice", b"secret")
    assert not users.check("alice", b"Secret")
    assert not users.check("bob", b"secret")


def test_mosquitto_passwd_and_we_read_each_other(tmp_path: Path) -> None:
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("mosquitto_passwd is not installed")
    file = tmp_path / "users"
    subprocess.run([tool, "-c", "-b", file, "alice", "päss:word"], check=True, capture_output=True)
    set_password(file, "bob", b"other", iterations=101)
    subprocess.run([tool, "-b", file, "carol", "third"], check=True, capture_output=True)
    users = load_passwords(file)
    for user, password in (("alice", "päss:word"), ("bob", "other"), ("carol", "third")):
        assert users.check(user, password.encode())


def test_the_older_salted_sha512_is_understood() -> None:
    salt = b"0123456789ab"
    digest = hashlib.sha512(b"secret" + salt).digest()
    users = passwords(f"old:$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}")
    assert users.check("old", b"secret")
    assert not users.check("old", b"secre")


@given(st.binary(max_size=40), st.binary(max_size=40))
@example(b"", b"\0")
def test_a_hash_matches_its_password_and_no_other(password: bytes, other: bytes) -> None:
    users = passwords(f"u:{hash_password(password, iterations=1)}")
    assert users.check("u", password)
    # PBKDF2 fills short passwords up with zeros, so that those at the end make no difference.
    assert users.check("u", other) == (password.rstrip(b"\0") == other.rstrip(b"\0"))


def test_a_proved_password_is_remembered_and_a_wrong_one_is_not() -> None:
    users = passwords(MOSQUITTO_LINE)
    assert not users.remembered("alice", b"secret")
    users.check("alice", b"wrong")
    assert not users.remembered("alice", b"wrong")
    users.check("alice", b"secret")
    assert users.remembered("alice", b"secret")
    assert not users.remembered("alice", b"wrong")
    assert not users.remembered("bob", b"secret")


def test_unknown_users_cost_as_much_as_wrong_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    users = passwords(f"u:{hash_password(b'x', iterations=2_000)}")
    derive, costs = hashlib.pbkdf2_hmac, []

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        costs.append((name, len(salt), iterations))
        return derive(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    for user in ("u", "nobody"):
        assert not users.check(user, b"wrong")
    known, unknown = costs
    assert known == unknown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice", "users, line 1: is not of the form user:hash"),
        ("\nalice:secret", "users, line 2: the password is not hashed; write the line with geomq passwd"),
        ("a:$argon2id$x", "users, line 1: the hash is of an unknown kind; $7$ and $6$ are understood"),
        ("a:$7$0$YQ==$YQ==", "users, line 1: iterations must be between 1 and 5000000"),
        ("a:$7$99999999999999999999$YQ==$YQ==", "users, line 1: iterations must be between 1 and 5000000"),
        ("a:$7$²$YQ==$YQ==", "users, line 1: iterations must be between 1 and 5000000"),
        ("a:$7$1$YQ==$YQ==", "users, line 1: the hash is malformed"),
        ("a:$7$1$?$YQ==", "users, line 1: the hash is malformed"),
        ("a:$7$1$é$YQ==", "users, line 1: the hash is malformed"),
        (f"{MOSQUITTO_LINE}\n{MOSQUITTO_LINE}", "users, line 2: user 'alice' is listed twice"),
        (":x", "users, line 1: a user name has 1 to 65535 bytes"),
    ],
)
def test_damage_is_named_by_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        passwords(text)
    assert str(caught.value) == message


@given(st.text(max_size=100))
def test_any_text_is_a_password_file_or_a_config_error(text: str) -> None:
    try:
        passwords(text)
    except ConfigError as error:
        message = str(error)
        assert "\n" not in message


def test_writing_keeps_other_lines_and_hides_the_file_from_others(tmp_path: Path) -> None:
    file = tmp_path / "users"
    set_password(file, "bob", b"1", iterations=1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(f"# mine\n{MOSQUITTO_LINE}\n" + file.read_text())
    file.chmod(0o640)
    set_password(file, "bob", b"2", iterations=1)
    users = load_passwords(file)
    assert users.check("bob", b"2")
    assert not users.check("bob", b"1")
    assert file.read_text().startswith(f"# mine\n{MOSQUITTO_LINE}\nbob:$7$1$")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    delete_user(file, "bob")
    assert file.read_text() == f"# mine\n{MOSQUITTO_LINE}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["users"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_file_stays_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "users"
    set_password(file, "alice", b"1", iterations=1)
    os.chown(file, 1234, 5678)
    os.chmod(file, 0o640)
    set_password(file, "bob", b"2", iterations=1)
    delete_user(file, "alice")
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 5678, 0o640)


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    link = tmp_path / "users"
    link.symlink_to(Path("etc") / "users")
    for user in ("alice", "bob"):
        set_password(link, user, b"1", iterations=1)
    assert link.is_symlink()
    assert "bob" in load_passwords(tmp_path / "etc" / "users")


def test_a_name_that_would_be_a_comment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must not start with #"):
        set_password(tmp_path / "users", "#alice", b"1", iterations=1)
    assert not (tmp_path / "users").exists()


def test_impossible_writes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    for user in ("", "a:b", "a\nb", " a", "a\0", "x" * 65_536):
        with pytest.raises(UsageError):
            set_password(file, user, b"x", iterations=1)
    assert not file.exists()
    set_password(file, "bob", b"1", iterations=1)
    with pytest.raises(UsageError, match="no user 'carol'"):
        delete_user(file, "carol")
    with pytest.raises(UsageError, match="cannot write it"):
        set_password(tmp_path / "none" / "users", "bob", b"1", iterations=1)
    with pytest.raises(ConfigError, match="cannot read it"):
        load_passwords(tmp_path / "nothing")
