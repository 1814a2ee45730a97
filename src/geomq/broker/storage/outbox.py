"""The outbox: bytes for one connection leave in one write per loop tick, and what needs the disk waits for it.

`send` is for what may go at once. `hold` is for acknowledgements and for QoS 1 and 2 messages: they leave only when
everything the store collected before is safe, in the order they were held. Nothing here waits for a slow reader.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from geomq.broker.storage.committer import Committer
from geomq.broker.storage.store import Store
from geomq.mqtt.session.changes import Journal

PROMPT_MAX = 32
"""How many arrivals at most are answered at once before a whole tick is looked at again."""


class Sender(Protocol):
    """A connection: bytes gather in it until they are written out."""

    def send(self, data: bytes) -> None: ...

    def write_out(self) -> None: ...


Held = list[tuple[Sender, bytes]]


class Pacing:
    """When to write: while arrivals come one to a tick, each is answered here and now: gathering would only add delay.
    Now and then a tick is waited for, to see whether it is still so.

    `credit` is how many may be answered at once before that, `arrivals` those of this tick that were not.
    """

    __slots__ = ("_streak", "arrivals", "credit")

    def __init__(self) -> None:
        self.arrivals = self.credit = self._streak = 0

    def end_tick(self) -> None:
        self._streak = min(2 * self._streak + 1, PROMPT_MAX) if self.arrivals <= 1 else 0
        self.credit, self.arrivals = self._streak, 0


class Outbox:
    """`journal` is the list that durable sessions append to, `held` what waits for the next write to the disk;
    `before_write` runs first in every flush.

    Whoever handles data that came in says so with `arrive`, and with `arrived` when it is done.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        committer: Committer | None,
        *,
        before_write: Callable[[], None],
    ) -> None:
        self.journal: Journal = []
        self._before_write = before_write
        self.arriving = False
        self._loop = loop
        self._store = store
        self._committer = committer
        if committer is not None:
            committer.collectors.append(self._collect)
        self._dirty: list[Sender] = []
        self.held: Held = []
        self._scheduled = False
        self._prompt = False
        self.pacing = Pacing()

    @property
    def durable(self) -> bool:
        """Whether sessions are to keep a journal at all."""
        return self._committer is not None

    @property
    def full(self) -> bool:
        """Whether the disk takes nothing more."""
        return self._committer is not None and self._committer.full

    def mark(self, connection: Sender) -> None:
        """The connection has something to write."""
        self._dirty.append(connection)
        if not self._scheduled:
            self.schedule()

    def schedule(self) -> None:
        """Something is to be written, journalled or collected: see to it at the end of this tick."""
        if self._scheduled:
            return
        self._scheduled = True
        if self.arriving and self.pacing.credit:
            self.pacing.credit -= 1
            self._prompt = True
        else:
            self._loop.call_soon(self._end_tick)

    def forget(self, client_id: str) -> None:
        """A session is over: what this tick already journalled must not bring it back, nor change what is gone."""
        self.journal[:] = [change for change in self.journal if change.client_id != client_id]
        self.schedule()

    def arrive(self) -> None:
        """Data came in and is handled from here on."""
        self.arriving = True

    def arrived(self) -> None:
        """The data that was `arriving` is handled."""
        self.arriving = False
        if self._prompt:
            self._prompt = False
            self.flush()
        else:
            self.pacing.arrivals += 1

    def _end_tick(self) -> None:
        self.pacing.end_tick()
        self.flush()

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back when everything written so far is on disk."""
        if self._committer is None:
            callback()
        else:
            self._committer.when_safe(callback)

    def hold(self, connection: Sender, data: bytes) -> None:
        """Send when safe."""
        if self._committer is None:
            connection.send(data)
            return
        if not self.held:
            self.schedule()
            self._committer.when_safe(partial(self._release, self.held))
        self.held.append((connection, data))

    def flush(self) -> None:
        """The end of a tick: hand writes to the store, then bytes to the sockets."""
        self._before_write()
        self._scheduled = False
        self._collect()
        if self._committer is not None:
            if self._store.dirty:
                self._committer.wrote()
            self._committer.commit()
        self._write()

    def _collect(self) -> None:
        """Everything journalled and held so far belongs to the next write, and what comes later to a later one."""
        if self.held:
            self.held = []
        if self.journal:
            self._store.record(self.journal)
            self.journal.clear()

    def _release(self, held: Held) -> None:
        before, self._scheduled = self._scheduled, True  # written here, so that the tick's end need not do it
        try:
            for connection, data in held:
                connection.send(data)
        finally:
            self._scheduled = before
        self._write()

    def _write(self) -> None:
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for connection in dirty:
                connection.write_out()
