"""What a broker needs of the machine it runs on: clocks, random numbers, threads and free addresses.

A broker gets all of it from the one object it is given and takes nothing from anywhere else (`tests/test_tidy.py`
checks it), so that a simulation decides what the time is and which number comes next. What opens its store it is given
as well: there a simulation decides when the disk fails. The event
loop is part of it without being named here: connections, timers and monotonic time are the running loop's.
"""

import random
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from geomq.broker.config.free_address import check_free
from geomq.broker.config.settings import Listener

EPOCH_BYTES = 6


def start_worker(name: str) -> Executor:
    """One thread, started when it first has something to do."""
    return ThreadPoolExecutor(1, thread_name_prefix=name)


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
    start_worker: Callable[[str], Executor] = start_worker
    """A thread for what would keep the loop waiting, by name."""
    check_free: Callable[[Listener], Awaitable[None]] = check_free
    """Raises ConfigError for an address that cannot be had."""

    def new_epoch(self) -> int:
        """A number that nothing had before and nothing will have again, whatever became of clock and disk; never 0."""
        return 1 + int.from_bytes(self.random_bytes(EPOCH_BYTES))


SYSTEM: Final = Platform()
