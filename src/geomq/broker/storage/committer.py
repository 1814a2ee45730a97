"""Group commit: everything a loop tick wrote becomes safe together, and only then do its acknowledgements go out.

At the end of a tick the collected writes go to the store in one batch. A thread syncs; what later ticks write
meanwhile waits for the next sync. Callbacks run on the loop, in the order they were given. While the disk is
full nothing is acknowledged and the writes are tried again; any other failure of the store is final and is
handed to `on_failure` once.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.storage.errors import StoreError, StoreFull
from geomq.broker.storage.store import Store

FULL_RETRY_S = 1.0
LOOK_EVERY_S = 0.25

Callback = Callable[[], object]


class Committer:
    """Binds a store to the running event loop. Touch it from that loop only."""

    def __init__(
        self,
        store: Store,
        on_failure: Callable[[StoreError], object],
        *,
        retry_s: float = FULL_RETRY_S,
        platform: Platform = SYSTEM,
    ) -> None:
        self.syncs = 0
        self.failed: StoreError | None = None
        self.collectors: list[Callable[[], None]] = []
        """They hand over what is not in the store yet; called before every write, so that a write leaves out nothing
        that happened before it."""
        self._store = store
        self._on_failure = on_failure
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self._thread = platform.start_workers("geomq-sync", 1)
        self._waiting: list[Callback] = []
        self._written: list[Callback] = []
        self._futures: set[asyncio.Future[None]] = set()
        self.scheduled = False
        """Whether what the store collected goes out at the end of this tick."""
        self._unsynced = False
        self._syncing = False
        self._low = False
        self._look_at = 0.0
        self._retry: asyncio.TimerHandle | None = None

    @property
    def full(self) -> bool:
        """Whether the disk is full or about to be: refuse new messages that would have to be kept."""
        now = self._loop.time()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._low = not self._store.has_room()
        return self._low or self._store.full

    def wrote(self) -> None:
        """The store collected something; it goes out at the end of this tick, and nobody waits for it."""
        if not self.scheduled and self._retry is None:
            self.scheduled = True
            self._loop.call_soon(self.commit)

    def when_safe(self, callback: Callback) -> None:
        """Call back once everything collected up to now is safe; never if the store fails first."""
        self._waiting.append(callback)
        self.wrote()

    async def safe(self) -> None:
        """Wait until everything collected up to now is safe; raises StoreError if it never will be."""
        if self.failed is not None:
            raise self.failed
        future: asyncio.Future[None] = self._loop.create_future()
        self._futures.add(future)
        self.when_safe(partial(_resolve, future))
        try:
            await future
        finally:
            self._futures.discard(future)

    def commit(self) -> None:
        """Write what the store collected, if it is to go out in this tick, and see to it that it becomes safe. Called
        at the end of the tick, or before by who knows that nothing more comes."""
        if self.scheduled:
            self._write()

    def _write(self) -> None:
        if self.failed is not None:
            return
        try:
            for collect in self.collectors:
                collect()
        finally:
            self.scheduled = False
        if self._store.dirty:
            try:
                self._store.write()
            except StoreFull:
                self._retry = self._loop.call_later(self._retry_s, self._try_again)
                return
            except StoreError as error:
                self._fail(error)
                return
            self._unsynced = True
        self._written += self._waiting
        self._waiting = []
        self._start_sync()

    def _try_again(self) -> None:
        self._retry = None
        self._write()

    def _start_sync(self) -> None:
        """Sync if somebody waits; writes nobody waits for are safe with the next sync."""
        if self._syncing or not self._written:
            return
        callbacks, self._written = self._written, []
        if not self._unsynced or not self._store.durable:
            self._unsynced = False
            self._call(callbacks)
            return
        self._syncing, self._unsynced = True, False
        self._thread.submit(self._sync, callbacks)

    def _sync(self, callbacks: list[Callback]) -> None:
        """Runs in the thread."""
        failure: StoreError | None = None
        try:
            self._store.sync()
        except StoreError as error:
            failure = error
        self._loop.call_soon_threadsafe(self._end_sync, callbacks, failure)

    def _end_sync(self, callbacks: list[Callback], failure: StoreError | None) -> None:
        self._syncing = False
        self.syncs += 1
        if failure is not None:
            self._fail(failure)
            return
        self._call(callbacks)
        self._start_sync()

    def _call(self, callbacks: list[Callback]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                # One client's answer must not cost the others theirs.
                self._loop.call_exception_handler({"message": "acknowledgement failed", "exception": error})

    def _fail(self, error: StoreError) -> None:
        if self.failed is None:
            self.failed = error
            self._waiting, self._written = [], []
            for future in self._futures:
                if not future.done():
                    future.set_exception(error)
            self._on_failure(error)

    async def close(self) -> None:
        """Make everything collected safe if the store still can, then let go of the thread."""
        try:
            if self.failed is None and not self._store.full:
                await self.safe()
        finally:
            if self._retry is not None:
                self._retry.cancel()
            self._thread.shutdown(wait=True)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
