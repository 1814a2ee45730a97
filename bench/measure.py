"""Instruments: CPU time and memory of another process, pinning, and a median with its spread.

CPU time is what the kernel accounted to all threads of the process, in nanoseconds; it does not depend on what else
the machine is doing, as elapsed time would.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass


class BenchError(Exception):
    """A measurement could not be made as described."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity: the median of its repeats, the lowest and the highest."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        if not values:
            raise BenchError("nothing was measured")
        return cls(statistics.median(values), min(values), max(values), len(values))

    @property
    def spread(self) -> float:
        """Half the range, as a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process, dead ones included."""
    try:
        return time.clock_gettime_ns(~pid << 3 | 2) / 1e9
    except OSError:
        return _cpu_s_from_proc(pid)


def _cpu_s_from_proc(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cores() -> tuple[int, int] | None:
    """The cores for broker and load generator, or None if there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable[0], usable[1]) if len(usable) > 1 else None


def pin(pid: int, core: int) -> None:
    """Keep a process, with all threads it has or will have, on one core."""
    os.sched_setaffinity(pid, {core})
