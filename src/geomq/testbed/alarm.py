"""Callbacks at exact times. Event loops round their timers to milliseconds; emulated links of two milliseconds cannot.

On Linux one timerfd per loop wakes it to the microsecond; elsewhere the loop's own timers have to do.
"""

import asyncio
import ctypes
import heapq
import os
import time
from collections.abc import Callable
from itertools import count

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Calls back at times of `time.monotonic()`, in their order; those of equal time as they were set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._armed: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = _timerfd(self._libc)
        if self._file is not None:
            loop.add_reader(self._file, self._ring)

    def set(self, at_s: float, callback: Callable[[], None]) -> None:
        """Call back at this time, or soon if it has passed."""
        heapq.heappush(self._due, (at_s, next(self._number), callback))
        self._arm()

    def close(self) -> None:
        """Forget everything that was set."""
        self._due.clear()
        if self._handle is not None:
            self._handle.cancel()
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _arm(self) -> None:
        first = self._due[0][0]
        if self._armed is not None and self._armed <= first:
            return
        self._armed = first
        if self._file is not None:
            at_ns = max(1, int(first * 1e9))
            spec = _Itimerspec(_Timespec(0, 0), _Timespec(*divmod(at_ns, 1_000_000_000)))
            self._libc.timerfd_settime(self._file, _ABSTIME, ctypes.byref(spec), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, first - time.monotonic()), self._ring)

    def _ring(self) -> None:
        if self._file is not None:
            try:
                os.read(self._file, 8)
            except BlockingIOError:
                return
        self._armed = None
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        if self._due:
            self._arm()


def _timerfd(libc: ctypes.CDLL) -> int | None:
    if not hasattr(libc, "timerfd_create"):
        return None
    file: int = libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
    return None if file < 0 else file
