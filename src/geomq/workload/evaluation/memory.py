"""How much memory this process and all its children took at most, Spark's JVM and workers included.

Owns a thread that reads /proc while the body runs. Where there is no /proc it knows the own process only.
"""

import contextlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_INTERVAL_S = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Peak:
    """The highest total seen so far, in megabytes."""

    def __init__(self) -> None:
        self.mb = 0.0

    def look(self) -> None:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024 * 1024)
        self.mb = max(self.mb, own, tree_bytes(os.getpid()) / 1e6)


@contextlib.contextmanager
def peak_memory() -> Iterator[Peak]:
    """Watch memory while the body runs."""
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_S):
            peak.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        peak.look()


def tree_bytes(root: int) -> int:
    """Resident bytes of a process and its descendants; 0 where that cannot be read."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(after[1]), []).append(pid)
        resident[pid] = int(after[21]) * _PAGE
    total, queue = 0, [root]
    while queue:
        pid = queue.pop()
        total += resident.get(pid, 0)
        queue += children.get(pid, [])
    return total
