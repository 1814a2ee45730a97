"""The folder of a store as files: one broker at a time, and nothing essential missing."""

import fcntl
import os

from geomq.broker.storage.errors import StoreError, damaged
from geomq.broker.storage.logs_on_disk import logs_with_content, unknown_record
from geomq.broker.storage.synced import FILE, read_synced

IN_USE = "IN-USE"


class FolderLock:
    """Held while the folder is open; StoreError if somebody else holds it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(os.path.join(path, IN_USE), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise StoreError(f"store {path}: another broker uses it") from None

    def close(self) -> None:
        os.close(self._file)


def check_folder(path: str) -> None:
    """StoreError if the folder cannot be what a broker left, whatever happened to the power."""
    if not os.path.exists(os.path.join(path, "CURRENT")) and _held_something(path):
        raise damaged(path, "the file CURRENT is missing")
    for log in logs_with_content(path):
        at = unknown_record(log)
        if at is not None:
            raise damaged(path, f"{os.path.basename(log)} has an invalid record at byte {at}")


def _held_something(path: str) -> bool:
    """Whether a database was here; one that was never finished has neither tables nor a log with content."""
    if logs_with_content(path) or any(name.endswith(".sst") for name in os.listdir(path)):
        return True
    try:
        return bool(read_synced(path))
    except ValueError:
        return os.path.getsize(os.path.join(path, FILE)) > 0
