"""What a store remembers beside its database: how many batches were synced, so that a log that ends before is noticed.

RocksDB takes whatever its newest log still holds for all there was. Every batch therefore carries its number, and after
each sync the number goes into a small file of its own. It is never ahead of what is safe: a power failure may leave
it behind, which is no damage, but a database that is behind this file has lost what was acknowledged.
"""

import os
import zlib
from contextlib import suppress

FILE = "SYNCED"
MAGIC = b"GMQ1"
SLOT = 16
BETWEEN_SYNCS = 256
"""How often at least, counted in syncs of the database, the file itself is synced."""


def read_synced(folder: str) -> int | None:
    """The number of the last batch known to be synced; None without the file. ValueError if nothing in it is valid."""
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
            data = file.read(2 * SLOT)
    except FileNotFoundError:
        return None
    numbers = [number for start in (0, SLOT) if (number := _read(data[start : start + SLOT])) is not None]
    if not numbers:
        raise ValueError(f"{FILE} is not valid")
    return max(numbers)


def _read(slot: bytes) -> int | None:
    if len(slot) < SLOT or slot[:4] != MAGIC or zlib.crc32(slot[:12]) != int.from_bytes(slot[12:]):
        return None
    return int.from_bytes(slot[4:12])


class Synced:
    """The open file; two slots take turns, so that a torn write costs at most the newest number."""

    def __init__(self, folder: str, number: int) -> None:
        self._file = os.open(os.path.join(folder, FILE), os.O_RDWR | os.O_CREAT, 0o600)
        self._slot = self._since = 0
        for _ in range(2):
            self._write(number)
        self.flush()

    def note(self, number: int) -> None:
        """All batches up to this one are safe."""
        self._write(number)
        self._since += 1
        if self._since >= BETWEEN_SYNCS:
            self.flush()

    def _write(self, number: int) -> None:
        body = MAGIC + number.to_bytes(8)
        # A note that cannot be written stays behind, which is allowed.
        with suppress(OSError):
            os.pwrite(self._file, body + zlib.crc32(body).to_bytes(4), self._slot * SLOT)
        self._slot ^= 1

    def flush(self) -> None:
        """Make the note itself safe."""
        self._since = 0
        with suppress(OSError):
            os.fsync(self._file)

    def close(self) -> None:
        self.flush()
        os.close(self._file)
