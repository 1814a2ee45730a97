"""How this process treats memory it has freed: it keeps a little of it.

Reads and writes of some hundred kilobytes come and go with every turn of the event loop. Given back to the system each
time, their pages have to be zeroed and mapped anew, which costs more than the events in them.
"""

import ctypes

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
