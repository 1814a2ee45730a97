"""Password checks that wait for a thread: a bounded number, and the addresses they come from take turns.

A check is slow on purpose, so an address that asks for many waits behind its own, and one whose asker is gone is not
made.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from geomq.broker.core import Core
from geomq.broker.security.limits import address_block

THREADS_MAX: Final = 4
WAITING_MAX: Final = 1_000
WAITING_PER_ADDRESS_MAX: Final = 100


class _Check(NamedTuple):
    """What to compute in a thread, and who wants to know."""

    asker: Hashable
    compute: Callable[[], bool]
    then: Callable[[bool], object]


class PasswordChecks:
    """The pool of one broker. Leaves the event loop a processor of its own where there are several."""

    def __init__(self, core: Core) -> None:
        self._loop = core.loop
        self._threads = max(1, min(THREADS_MAX, core.platform.processors - 1))
        self._pool = core.platform.start_workers("geomq-password", self._threads)
        self._under_way = 0
        self._waiting: dict[str, dict[Hashable, _Check]] = {}
        self._count = 0

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, asker: Hashable, address: str, compute: Callable[[], bool], then: Callable[[bool], object]) -> bool:
        """Call `then` with what `compute` returns; False if there are too many checks waiting."""
        block = address_block(address)
        waiting = self._waiting.get(block, {})
        if len(waiting) >= WAITING_PER_ADDRESS_MAX or self._count >= WAITING_MAX:
            return False
        waiting[asker] = _Check(asker, compute, then)
        self._waiting[block] = waiting
        self._count += 1
        self._start()
        return True

    def cancel(self, asker: Hashable, address: str) -> None:
        """The asker is gone: its check, if it waits, need not be made."""
        block = address_block(address)
        waiting = self._waiting.get(block)
        if waiting is not None and waiting.pop(asker, None) is not None:
            self._count -= 1
            if not waiting:
                del self._waiting[block]

    def _start(self) -> None:
        while self._waiting and self._under_way < self._threads:
            block = next(iter(self._waiting))
            waiting = self._waiting.pop(block)
            check = waiting.pop(next(iter(waiting)))
            if waiting:
                self._waiting[block] = waiting  # behind all other addresses
            self._count -= 1
            self._under_way += 1
            self._pool.submit(self._compute, check)

    def _compute(self, check: _Check) -> None:
        """In a thread."""
        self._loop.call_soon_threadsafe(self._computed, check, check.compute())

    def _computed(self, check: _Check, good: bool) -> None:
        self._under_way -= 1
        self._start()
        check.then(good)
