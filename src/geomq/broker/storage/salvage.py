"""What a damaged database still holds: every key and value that can be read, out of a copy that may be changed."""

import os
import re
from collections.abc import Iterator
from typing import Any

from rocksdict import Rdict

from geomq.broker.storage.disk import MARK
from geomq.broker.storage.errors import StoreError, store_error
from geomq.broker.storage.logs_on_disk import logs_with_content, make_skippable
from geomq.broker.storage.rocks_options import rocks_options
from geomq.broker.storage.synced import FILE, read_synced

KEY_BYTES_MAX = 66_000
"""Keys hold at most two strings of MQTT's length and a few bytes; most are much shorter."""
_DROPPED = re.compile(r"dropping (\d+) bytes")


class Salvaged:
    """What was read from a folder, and what is known to be missing, in words."""

    def __init__(self, folder: str) -> None:
        self.items: dict[bytes, bytes] = {}
        self.missing: list[str] = []
        before = _readable_synced(folder)
        for log in logs_with_content(folder):
            count = make_skippable(log)
            if count:
                self.missing.append(f"{os.path.basename(log)}: {count} invalid records in the write-ahead log")
        db = self._open(folder)
        try:
            self._read(db)
        finally:
            db.close()
        self._look_at_log(folder)
        self.unreadable = bool(self.missing)
        """Whether something in the files was damaged, apart from what is simply not there."""
        last = int.from_bytes(self.items.pop(MARK, b""))
        if before is None:
            self.missing.append(f"whether the newest batches are there is unknown: {FILE} is missing or invalid")
        elif last < before:
            self.missing.append(f"the last {before - last} of {before} synced batches are not there")

    def _open(self, folder: str) -> Any:
        options = rocks_options(salvage=True)
        try:
            return Rdict(folder, options)
        except Exception as error:
            self.missing.append(f"the list of files cannot be used, so all tables were read: {_line(error)}")
        try:
            Rdict.repair(folder, options)
            return Rdict(folder, options)
        except Exception as error:
            raise StoreError(str(store_error(folder, "read", error))) from None

    def _read(self, db: Any) -> None:
        """Read on behind every place that cannot be read."""
        start = b""
        while True:
            last = start
            for key, value in _from(db, start):
                self.items[key] = value
                last = key + b"\0"
            if not _is_unreadable(db, last):
                return
            self.missing.append(f"a block of a table behind key {last[:40]!r} cannot be read")
            start = _next_readable(db, last)

    def _look_at_log(self, folder: str) -> None:
        """RocksDB says in its own log how much of a write-ahead log it skipped."""
        try:
            with open(os.path.join(folder, "LOG"), errors="replace") as file:
                skipped = sum(int(found[1]) for line in file if (found := _DROPPED.search(line)))
        except OSError:
            return
        if skipped:
            self.missing.append(f"{skipped} bytes of the write-ahead log cannot be read")


def _readable_synced(folder: str) -> int | None:
    try:
        return read_synced(folder)
    except ValueError:
        return None


def _from(db: Any, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values from `start` up to the end or the next place that cannot be read."""
    cursor = db.iter()
    cursor.seek(start)
    while cursor.valid():
        yield cursor.key(), cursor.value()
        cursor.next()


def _is_unreadable(db: Any, key: bytes) -> bool:
    """Whether there is damage, and not an item or the end, at or behind the key."""
    cursor = db.iter()
    cursor.seek(key)
    if cursor.valid():
        return False
    try:
        cursor.status()
    except Exception:
        return True
    return False


def _next_readable(db: Any, damaged: bytes) -> bytes:
    """The first key behind the damage at which there is an item, or the end, again: by growing steps, then by halves.

    Keys are taken for numbers, as long as those that surround a damaged block may have to be to differ.
    """
    width = min(KEY_BYTES_MAX, len(damaged) + 16)
    low, step = int.from_bytes(damaged.ljust(width, b"\0")), 1
    high = low + step
    top = (1 << 8 * width) - 1
    while high < top and _is_unreadable(db, high.to_bytes(width)):
        low, step = high, 2 * step
        high += step
    high = min(high, top)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_unreadable(db, middle.to_bytes(width)):
            low = middle
        else:
            high = middle
    return high.to_bytes(width)


def _line(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:300]
