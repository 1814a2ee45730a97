"""How this process treats memory: it keeps a little of what it has freed, and does not look for garbage for long.

Reads and writes of some hundred kilobytes come and go with every turn of the event loop. Given back to the system each
time, their pages have to be zeroed and mapped anew, which costs more than the events in them.

What lives for long is not looked at again by the collector of cycles: with a million subscriptions that would keep
everybody waiting for a quarter of a second now and then. Clients that come and go leave no cycles behind
(`tests/broker/operations/test_memory.py`).
"""

import contextlib
import ctypes
import gc
from collections.abc import Callable, Iterator

from geomq.broker.platform import SYSTEM

KEPT_BYTES = 1 << 25
MAPPED_BYTES_MIN = 1 << 23
"""Larger pieces are mapped one by one, and given back at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
PAUSE_NS = 5_000_000
"""What survives a collection that took longer is left alone from then on."""
THRESHOLDS = (50_000, 4, 10)
"""A collection looks at some hundred thousand objects at most, unless those before it found little to keep."""


def keep_freed_memory() -> bool:
    """Ask the C library for it; whether it understood."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
    )


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """While millions of objects are made that all stay, the collector would look at all of them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class LongLived:
    """Sees how long collections take. Give it to `gc.callbacks`."""

    def __init__(
        self, *, freeze: Callable[[], object] = gc.freeze, clock_ns: Callable[[], int] = SYSTEM.perf_ns
    ) -> None:
        self._freeze = freeze
        self._clock_ns = clock_ns
        self._began = 0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = self._clock_ns()
        elif self._clock_ns() - self._began > PAUSE_NS:
            self._freeze()


def spare_long_lived() -> None:
    """Look at what is there now once, and never again; cycles are rare here."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(LongLived())
