"""RocksDB underneath the store: one folder, atomic batches, a write-ahead log that can be synced from a thread.

Writing takes microseconds and happens in the caller; only `sync` waits for the disk, and it lets go of the
interpreter lock while it does. Whatever RocksDB says becomes a StoreError.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from geomq.broker.storage.errors import StoreError, store_error
from geomq.broker.storage.writes import Writes

BUFFER_BYTES = 16 * 1_048_576
BUFFERS_MAX = 6


class RocksDisk:
    """An open RocksDB folder."""

    def __init__(self, path: str, *, sync: bool, free_bytes_min: int) -> None:
        self.path = path
        self.free_bytes_min = free_bytes_min
        self._sync = sync
        self._lock = threading.Lock()
        self._broken = False
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise store_error(path, "make", error) from None
        self._db = self._open()

    def _open(self) -> Any:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(BUFFER_BYTES)
        options.set_max_write_buffer_number(BUFFERS_MAX)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1_048_576)
        options.set_max_open_files(256)
        try:
            return Rdict(self.path, options)
        except Exception as error:
            raise store_error(self.path, "open", error) from None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key and value in order; damage raises StoreError instead of looking like the end."""
        cursor = self._db.iter()
        try:
            cursor.seek_to_first()
            while cursor.valid():
                yield cursor.key(), cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            raise store_error(self.path, "read", error) from None

    def write(self, writes: Writes) -> None:
        batch = WriteBatch(raw_mode=True)
        writes.replay(batch.put, batch.delete, batch.delete_range)
        if self._broken:
            self._reopen()
        try:
            self._db.write(batch, WriteOptions())
        except Exception as error:
            self._broken = True
            raise store_error(self.path, "write", error) from None

    def sync(self) -> None:
        if not self._sync:
            return
        with self._lock:
            try:
                self._db.flush_wal(True)
            except Exception as error:
                # After a failed sync nobody knows what reached the disk, so not even a full one may be retried.
                raise StoreError(str(store_error(self.path, "sync", error))) from None

    def _reopen(self) -> None:
        """After a failed write RocksDB refuses all others until it is opened anew."""
        with self._lock:
            # Closing fails like the write did; what it could not flush is in the log and read from there.
            with contextlib.suppress(Exception):
                self._db.close()
            self._db = self._open()
            self._broken = False

    def has_room(self) -> bool:
        try:
            space = os.statvfs(self.path)
        except OSError:
            return True
        return space.f_bavail * space.f_frsize >= self.free_bytes_min

    def close(self) -> None:
        with self._lock:
            self._db.close()
