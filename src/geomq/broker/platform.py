"""What a broker needs of the machine it runs on: clocks, random numbers, threads, addresses, open files, memory.

A broker gets all of it from the one object it is given and takes nothing from anywhere else (`tests/test_tidy.py`
checks it), so that a simulation decides what the time is and which number comes next. What opens its store it is given
as well: there a simulation decides when the disk fails. The event
loop is part of it without being named here: connections, timers and monotonic time are the running loop's.
"""

import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from geomq.broker.config.free_address import check_free
from geomq.broker.config.settings import Listener
from geomq.broker.process_memory import available_bytes, give_back, resident_bytes
from geomq.broker.sockets.accepting import OpenServer, open_server
from geomq.broker.sockets.descriptors import Descriptors, descriptors

EPOCH_BYTES = 6


def start_workers(name: str, threads: int) -> Executor:
    """So many threads, each started when there is something to do for it."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


def count_processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Give it to `Broker`; `SYSTEM` is the real one."""

    wall_s: Callable[[], float] = time.time
    """Unix time, which may jump."""
    perf_ns: Callable[[], int] = time.perf_counter_ns
    """For durations within this process."""
    turn_ns: Callable[[], int] = time.perf_counter_ns
    """For how long somebody has kept the loop, which passes while the broker computes."""
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    """Nobody can guess them: nonces, tokens, ids."""
    uniform: Callable[[float, float], float] = random.uniform
    """For pauses that should not coincide."""
    start_workers: Callable[[str, int], Executor] = start_workers
    """Threads for what would keep the loop waiting, by name and number."""
    processors: int = field(default_factory=count_processors)
    """They share the work."""
    open_server: OpenServer = open_server
    """Listens, and hands over what comes."""
    descriptors: Callable[[], Descriptors] = descriptors
    """How many files may be open."""
    resident_bytes: Callable[[], int] = resident_bytes
    """What this process occupies; 0 if nobody knows."""
    available_bytes: Callable[[], int | None] = available_bytes
    """How much memory there is for it."""
    give_back: Callable[[], object] = give_back
    """Returns to the system what was freed."""
    check_free: Callable[[Listener], Awaitable[None]] = check_free
    """Raises ConfigError for an address that cannot be had."""

    def new_epoch(self) -> int:
        """A number that nothing had before and nothing will have again, whatever became of clock and disk; never 0."""
        return 1 + int.from_bytes(self.random_bytes(EPOCH_BYTES))


SYSTEM: Final = Platform()
