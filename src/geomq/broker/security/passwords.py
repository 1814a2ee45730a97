"""The password file: `user:$7$iterations$salt$hash` lines as Mosquitto writes them.

Reads `$7$` (PBKDF2-HMAC-SHA512) and the older `$6$` (salted SHA-512); writes only `$7$`. A wrong password and
an unknown user cost the same time. Checking is slow on purpose: call `check` from a worker thread (hashlib
lets go of the interpreter lock), and only after `remembered` did not know the password.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from geomq.broker.platform import SYSTEM
from geomq.errors import ConfigError, UsageError

FILE_BYTES_MAX = 64 * 1_048_576
USERS_MAX = 1_000_000
NAME_BYTES_MAX = 65_535
ITERATIONS_MAX = 5_000_000
ITERATIONS_DEFAULT = 100_000
SALT_BYTES = 12
SALT_BYTES_MAX = 1_024
HASH_BYTES = 64
REMEMBERED_MAX = 100_000

RandomBytes = Callable[[int], bytes]


class Entry(NamedTuple):
    """One user's stored secret; 0 iterations is a single salted SHA-512."""

    iterations: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        if self.iterations:
            computed = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations)
        else:
            computed = hashlib.sha512(password + self.salt).digest()
        return hmac.compare_digest(computed, self.digest)


class Passwords:
    """The users of one password file. Safe to use from several threads."""

    def __init__(self, entries: dict[str, Entry], random_bytes: RandomBytes = SYSTEM.random_bytes) -> None:
        self._entries = entries
        costliest = max((entry.iterations for entry in entries.values()), default=ITERATIONS_DEFAULT)
        self._decoy = Entry(costliest, random_bytes(SALT_BYTES), random_bytes(HASH_BYTES))
        self._proof_key = random_bytes(32)
        self._proofs: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, user: str) -> bool:
        return user in self._entries

    def entry(self, user: str) -> Entry | None:
        """The user's secret as it is in the file."""
        return self._entries.get(user)

    def check(self, user: str, password: bytes) -> bool:
        """Whether `password` is the user's; slow, also for users that do not exist."""
        good = self._entries.get(user, self._decoy).matches(password)
        if good:
            if len(self._proofs) >= REMEMBERED_MAX:
                self._proofs.clear()
            self._proofs[user] = self._proof(password)
        return good

    def remembered(self, user: str, password: bytes) -> bool:
        """Whether this very password was proved before: quick, so that a reconnecting fleet costs little."""
        proof = self._proofs.get(user)
        return proof is not None and hmac.compare_digest(proof, self._proof(password))

    def _proof(self, password: bytes) -> bytes:
        return hmac.digest(self._proof_key, password, "sha256")


def load_passwords(path: str | os.PathLike[str], random_bytes: RandomBytes = SYSTEM.random_bytes) -> Passwords:
    """Read a password file, or raise ConfigError that names the file and line."""
    return Passwords(parse_passwords(_read(Path(path)), name=str(path)), random_bytes)


def parse_passwords(text: str, *, name: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, colon, secret = line.partition(":")
        try:
            if not colon:
                raise ValueError("is not of the form user:hash")
            check_user(user)
            if user in entries:
                raise ValueError(f"user {user[:80]!r} is listed twice")
            entries[user] = _parse_secret(secret)
        except ValueError as error:
            raise ConfigError(f"{name}, line {number}: {error}") from None
        if len(entries) > USERS_MAX:
            raise ConfigError(f"{name}: more than {USERS_MAX} users")
    return entries


def check_user(user: str) -> None:
    """Raise ValueError unless `user` can stand in a password file and in a CONNECT packet."""
    if not user or len(user.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise ValueError(f"a user name has 1 to {NAME_BYTES_MAX} bytes")
    if any(char in user for char in ":\0\r\n") or not user.isprintable() or user != user.strip():
        raise ValueError("a user name must not contain a colon or a control character, nor start or end with a space")
    if user.startswith("#"):
        raise ValueError("a user name must not start with #, which starts a comment")


def hash_password(password: bytes, *, iterations: int = ITERATIONS_DEFAULT) -> str:
    """A new `$7$` secret with a fresh salt."""
    salt = SYSTEM.random_bytes(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def set_password(path: Path, user: str, password: bytes, *, iterations: int = ITERATIONS_DEFAULT) -> None:
    """Add the user or replace the user's secret; every other line of the file stays as it is."""
    try:
        check_user(user)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _rewrite(path, user, f"{user}:{hash_password(password, iterations=iterations)}")


def delete_user(path: Path, user: str) -> None:
    """Take the user out of the file; one that is not there is refused."""
    if user not in load_passwords(path):
        raise UsageError(f"{path}: no user {user[:80]!r}")
    _rewrite(path, user, None)


def _rewrite(path: Path, user: str, line: str | None) -> None:
    lines = _read(path).split("\n") if path.exists() else []
    parse_passwords("\n".join(lines), name=str(path))
    kept = [old for old in lines if old.strip().partition(":")[0] != user]
    while kept and not kept[-1]:
        kept.pop()
    if line is not None:
        kept.append(line)
    _replace(path, "\n".join(kept) + "\n" if kept else "")


def _replace(path: Path, text: str) -> None:
    """Write the file whole or not at all; it stays its owner's, and nobody else may read a new one."""
    try:
        path = Path(os.path.realpath(path))
        before = path.stat() if path.exists() else None
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
            if before is not None:
                with contextlib.suppress(PermissionError):
                    os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, 0o600 if before is None else before.st_mode & 0o777)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot write it: {error.strerror}") from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes, not a password file")
        return data.decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _parse_secret(secret: str) -> Entry:
    parts = secret.split("$")
    if secret.startswith("$7$") and len(parts) == 5:
        if not (parts[2].isascii() and parts[2].isdigit() and 1 <= int(parts[2][:10]) <= ITERATIONS_MAX):
            raise ValueError(f"iterations must be between 1 and {ITERATIONS_MAX}")
        return Entry(int(parts[2][:10]), _base64(parts[3]), _digest(parts[4]))
    if secret.startswith("$6$") and len(parts) == 4:
        return Entry(0, _base64(parts[2]), _digest(parts[3]))
    if secret.startswith("$"):
        raise ValueError("the hash is of an unknown kind; $7$ and $6$ are understood")
    raise ValueError("the password is not hashed; write the line with geomq passwd")


def _base64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the hash is malformed") from None
    if not 1 <= len(data) <= SALT_BYTES_MAX:
        raise ValueError("the hash is malformed")
    return data


def _digest(text: str) -> bytes:
    data = _base64(text)
    if len(data) != HASH_BYTES:
        raise ValueError("the hash is malformed")
    return data
