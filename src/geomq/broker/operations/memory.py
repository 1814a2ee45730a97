"""How this process treats memory: it keeps a little of what it has freed, and does not look for garbage while it loads.

Reads and writes of some hundred kilobytes come and go with every turn of the event loop. Given back to the system each
time, their pages have to be zeroed and mapped anew, which costs more than the events in them.
"""

import contextlib
import ctypes
import gc
from collections.abc import Iterator

KEPT_BYTES = 1 << 25
MAPPED_BYTES_MIN = 1 << 23
"""Larger pieces are mapped one by one, and given back at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


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
