"""Looks at a store that nobody uses, and makes a damaged one usable: what can be read goes into a new store.

The damaged folder is kept as it was. What had been changed in lost batches is as it was before them, so a message
that was delivered may come again.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from geomq.broker.storage.disk import RocksDisk, check_synced
from geomq.broker.storage.errors import StoreError, store_error
from geomq.broker.storage.folder import FolderLock
from geomq.broker.storage.mend import Items, Mended
from geomq.broker.storage.salvage import Salvaged
from geomq.broker.storage.writes import Writes

BATCH = 10_000


@dataclass(slots=True)
class Findings:
    """What is wrong (None if nothing is), what could not be saved, and how many there are of what could."""

    problem: str | None
    lost: list[str] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)
    copy: str | None = None
    """Where the damaged folder is now."""


def check_store(path: str) -> Findings:
    """What is in the store, and what a repair could not save; changes nothing."""
    with _held(path):
        findings, _ = _look(path)
    return findings


def repair_store(path: str) -> Findings:
    """Put a new store with all that can be read in the place of a damaged one."""
    with _held(path):
        findings, items = _look(path)
        if findings.problem is None:
            return findings
        fresh, findings.copy = _free(f"{path}.repaired"), _free(f"{path}.damaged")
        try:
            disk = RocksDisk(fresh, sync=True, free_bytes_min=0)
            for writes in _in_batches(items):
                disk.write(writes)
            disk.sync()
            disk.close()
            os.rename(path, findings.copy)
            os.rename(fresh, path)
        except OSError as error:
            raise store_error(path, "repair", error) from None
    return findings


def _look(path: str) -> tuple[Findings, Items]:
    problem = None
    try:
        check_synced(path)
    except StoreError as error:
        problem = str(error).partition("; see what is lost")[0]
    copy = _free(f"{path}.looked-at")
    try:
        shutil.copytree(path, copy)
        salvaged = Salvaged(copy)
    except OSError as error:
        raise store_error(path, "copy", error) from None
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    mended = Mended(salvaged.items)
    # A store from before there were numbers has no file of them, which is no damage.
    lost = mended.lost + (salvaged.missing if problem is not None or salvaged.unreadable else [])
    if problem is None and lost:
        problem = f"store {path} is damaged: not everything in it can be read"
    return Findings(problem, lost, mended.kept), mended.items


def _in_batches(items: Items) -> Iterator[Writes]:
    writes = Writes()
    for count, (key, value) in enumerate(items.items(), 1):
        writes.put(key, value)
        if not count % BATCH:
            yield writes
            writes = Writes()
    yield writes


def _free(path: str) -> str:
    """The path, or with a number behind it if there is such a file already."""
    found, count = path, 1
    while os.path.lexists(found):
        count += 1
        found = f"{path}-{count}"
    return found


@contextmanager
def _held(path: str) -> Iterator[None]:
    if not os.path.isdir(path):
        raise StoreError(f"store {path}: no such folder")
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise store_error(path, "open", error) from None
    try:
        yield
    finally:
        lock.close()
