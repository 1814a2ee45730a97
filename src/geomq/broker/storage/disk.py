"""RocksDB underneath the store: one folder, atomic batches, a write-ahead log that can be synced from a thread.

Writing takes microseconds and happens in the caller; only `sync` waits for the disk, and it lets go of the
interpreter lock while it does. Whatever RocksDB says becomes a StoreError. A folder that has lost what was synced is
refused before anything in it is changed.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from rocksdict import AccessType, Rdict, WriteBatch, WriteOptions

from geomq.broker.storage.errors import StoreError, damaged, store_error
from geomq.broker.storage.folder import FolderLock, check_folder
from geomq.broker.storage.rocks_options import rocks_options
from geomq.broker.storage.synced import Synced, read_synced
from geomq.broker.storage.writes import Writes

MARK = b"\0mark"
"""The key under which every batch carries its number."""


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
            self._in_use = FolderLock(path)
        except OSError as error:
            raise store_error(path, "make", error) from None
        try:
            self._written = check_synced(path)
            self._db = self._open()
            self._synced = Synced(path, self._written)
        except OSError as error:
            self._in_use.close()
            raise store_error(path, "open", error) from None
        except StoreError:
            self._in_use.close()
            raise

    def _open(self) -> Any:
        try:
            return Rdict(self.path, rocks_options())
        except Exception as error:
            raise store_error(self.path, "open", error) from None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key and value in order; damage raises StoreError instead of looking like the end."""
        cursor = self._db.iter()
        try:
            cursor.seek_to_first()
            while cursor.valid():
                key = cursor.key()
                if key != MARK:
                    yield key, cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            raise store_error(self.path, "read", error) from None

    def write(self, writes: Writes) -> None:
        batch = WriteBatch(raw_mode=True)
        writes.replay(batch.put, batch.delete, batch.delete_range)
        batch.put(MARK, (self._written + 1).to_bytes(8))
        if self._broken:
            self._reopen()
        try:
            self._db.write(batch, WriteOptions())
        except Exception as error:
            self._broken = True
            raise store_error(self.path, "write", error) from None
        self._written += 1

    def sync(self) -> None:
        if not self._sync:
            return
        with self._lock:
            written = self._written
            try:
                self._db.flush_wal(True)
            except Exception as error:
                # After a failed sync nobody knows what reached the disk, so not even a full one may be retried.
                raise StoreError(str(store_error(self.path, "sync", error))) from None
            self._synced.note(written)

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
            self._synced.close()
            self._in_use.close()


def check_synced(path: str) -> int:
    """The number of the last batch in the folder; StoreError if more had been synced. Changes nothing.

    Opening a database for writing makes what its logs seem to hold final, so it is opened for reading first.
    """
    check_folder(path)
    try:
        synced = read_synced(path)
    except ValueError as error:
        raise damaged(path, str(error)) from None
    if not os.path.exists(os.path.join(path, "CURRENT")):
        return 0
    found = _last_batch(path)
    if synced is None and found:
        raise damaged(path, "the file SYNCED is missing")
    if synced is not None and found < synced:
        raise damaged(path, f"the last {synced - found} of {synced} synced batches are missing")
    return found


def _last_batch(path: str) -> int:
    try:
        db = Rdict(path, rocks_options(), access_type=AccessType.read_only(False))
    except Exception as error:
        raise store_error(path, "open", error) from None
    try:
        return int.from_bytes(db.get(MARK) or b"")
    except Exception as error:
        raise store_error(path, "read", error) from None
    finally:
        db.close()
