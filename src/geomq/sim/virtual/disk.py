"""A disk that keeps what a broker wrote over its deaths, and fails in the ways real ones do.

What was written survives the death of the process; only what was synced is sure to survive that of the machine. Of the
rest a machine keeps the first batches, as many as chance has it: one that was cut in the middle is recognised by its
checksum and dropped, so a batch is there whole or not at all.
"""

import random
from collections import deque
from collections.abc import Iterable

from geomq.broker.storage.errors import StoreError, StoreFull
from geomq.broker.storage.writes import Writes
from geomq.sim.virtual.processes import Process

_Put = tuple[bytes, bytes | None, bytes | None]
"""A key with its value; without one it is deleted, and with an end, so are all keys before that."""


class VirtualDisk:
    """One broker's folder. `process` is the one that has it open."""

    free_bytes_min = 0

    def __init__(self, rng: random.Random) -> None:
        self.process: Process | None = None
        self.full = False
        self.broken = False
        """Nothing can be written or synced any more."""
        self.written = 0
        self.covers = 0
        """Up to which batch the next sync makes safe: those that were there when it was asked for."""
        self._rng = rng
        self._current: dict[bytes, bytes] = {}
        self._safe: dict[bytes, bytes] = {}
        self._unsynced: deque[list[_Put]] = deque()
        self._synced = 0

    def __len__(self) -> int:
        return len(self._current)

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        return sorted(self._current.items())

    def write(self, writes: Writes) -> None:
        self._reach()
        if self.broken:
            raise StoreError("the disk cannot be written")
        if self.full:
            raise StoreFull("the disk is full")
        batch: list[_Put] = []
        writes.replay(
            lambda key, value: batch.append((key, value, None)),
            lambda key: batch.append((key, None, None)),
            lambda first, last: batch.append((first, None, last)),
        )
        _apply(self._current, batch)
        self._unsynced.append(batch)
        self.written += 1
        self._reach()

    def sync(self) -> None:
        self._reach()
        if self.broken:
            raise StoreError("the disk cannot be synced")
        self._make_safe(max(self.covers, self._synced))
        self._reach()

    def begin_sync(self) -> None:
        """A thread is about to sync: what is written from now on is not part of it."""
        self.covers = self.written

    def has_room(self) -> bool:
        return not self.full

    def close(self) -> None:
        """Closing syncs."""
        self.begin_sync()
        if not self.broken:
            self._make_safe(self.written)

    def lose_power(self) -> None:
        """Forget what was not synced, but for the first batches of it."""
        self._make_safe(self._synced + self._rng.randint(0, len(self._unsynced)))
        self._unsynced.clear()
        self._synced = self.written
        self._current = dict(self._safe)

    def _make_safe(self, count: int) -> None:
        while self._synced < count and self._unsynced:
            _apply(self._safe, self._unsynced.popleft())
            self._synced += 1

    def _reach(self) -> None:
        if self.process is not None:
            self.process.reach("disk")


def _apply(data: dict[bytes, bytes], batch: list[_Put]) -> None:
    for key, value, end in batch:
        if value is not None:
            data[key] = value
        elif end is None:
            data.pop(key, None)
        else:
            for each in [each for each in data if key <= each < end]:
                del data[each]
