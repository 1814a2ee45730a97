"""The outbox: bytes for one connection leave in one write per loop tick, and what needs the disk waits for it.

`send` is for what may go at once. `hold` is for acknowledgements and for QoS 1 and 2 messages: they leave only when
everything the store collected before is safe, in the order they were held. So that QoS 0 does not overtake it, what a
publisher publishes behind such a message is held, too. Nothing here waits for a slow reader, and
nobody waits until much is written to many: what takes longer than a turn goes on in the next.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from geomq.broker.storage.committer import Committer
from geomq.broker.storage.store import Store
from geomq.mqtt.session.changes import Journal

PROMPT_MAX = 32
"""How many arrivals at most are answered at once before a whole tick is looked at again."""
FEW = 16
"""So many connections are written to before the clock is looked at."""
WRITE_NS = 5_000_000
GATHERED_MAX = 1 << 20
"""So many bytes may gather within a tick, as many times as they are to be written, before they are."""
HELD_BACK_MAX = 1 << 24
"""So many bytes of QoS 0 may wait for the disk behind what their publishers published before."""
WATCHED_MAX = 1 << 23
"""After so many bytes it is looked how much memory there is, however little time has passed."""


class Sender(Protocol):
    """A connection: bytes gather in it until they are written out."""

    def send(self, data: bytes) -> None: ...

    def write_out(self) -> None: ...


class Turns(Protocol):
    """Whose turn it is on the event loop."""

    def now_ns(self) -> int: ...

    def wait(self, go_on: Callable[[], object]) -> None: ...


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
        turns: Turns,
    ) -> None:
        self.journal: Journal = []
        self._turns = turns
        self._before_write = before_write
        self.arriving = False
        self._loop = loop
        self._store = store
        self._committer = committer
        if committer is not None:
            committer.collectors.append(self._collect)
        self._dirty: list[Sender] = []
        self._behind: deque[Sender] = deque()
        self._crowded: str | None = None
        self._gathered = self._unwatched = 0
        self._look: Callable[[], object] = _nobody_looks
        self.held: Held = []
        self._promised: deque[tuple[Held, set[str]]] = deque()
        """Whose messages wait for the disk, and with what they are held."""
        self._held_back = 0
        self.before: Held | None = None
        """Behind this goes QoS 0 that is delivered now, if it has to wait."""
        self._scheduled = False
        self._prompt = False
        self.pacing = Pacing()

    @property
    def durable(self) -> bool:
        """Whether sessions are to keep a journal at all."""
        return self._committer is not None

    @property
    def full(self) -> str | None:
        """Why no more can be kept, on disk or in memory; None if it can."""
        if self._crowded is not None:
            return self._crowded
        return "the disk is full" if self._committer is not None and self._committer.full else None

    @property
    def crowded(self) -> bool:
        """Whether memory is what is missing."""
        return self._crowded is not None

    def crowd(self, why: str | None) -> None:
        """From now on there is no memory to keep more, or there is again."""
        self._crowded = why

    @property
    def behind(self) -> bool:
        """Whether there is more to write than fits a turn, so that whoever causes more should wait."""
        return bool(self._behind)

    def gather(self, size: int) -> None:
        """So many bytes were given to connections; the time to write them is their sender's, if they are many."""
        self._gathered += size
        self.weigh(size)
        if self._gathered > GATHERED_MAX:
            self._write()

    def weigh(self, size: int) -> None:
        """So many bytes are written, as many times as they are: connections that do not read keep them."""
        self._unwatched += size
        if self._unwatched > WATCHED_MAX:
            self._unwatched = 0
            self._look()

    def watch(self, look: Callable[[], object]) -> None:
        """Call this now and then while much is written."""
        self._look = look

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

    def promised(self, publisher: str) -> None:
        """A message of QoS 1 or 2 of this publisher was just delivered: what comes from it goes behind what is held."""
        if self.held:
            if not self._promised or self._promised[-1][0] is not self.held:
                self._promised.append((self.held, set()))
            self._promised[-1][1].add(publisher)

    def is_behind(self, publisher: str) -> bool:
        """Whether a message of this publisher still waits for the disk, and not for it to have room again."""
        return bool(self._promised) and any(publisher in each for _, each in self._promised) and self.full is None

    def hold_back(self, publisher: str | None) -> None:
        """From now on QoS 0, which is this publisher's, goes behind what it published before; None ends it."""
        waits = () if publisher is None or not self.is_behind(publisher) else reversed(self._promised)
        self.before = next((held for held, publishers in waits if publisher in publishers), None)

    def send_behind(self, before: Held, connection: Sender, data: bytes) -> None:
        """Send it once that is sent; at once, if too much waits already: order is not worth all memory."""
        if self._held_back < HELD_BACK_MAX:
            self._held_back += len(data)
            before.append((connection, data))
        else:
            connection.send(data)

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
        if self._promised and self._promised[0][0] is held:
            self._promised.popleft()
            self._held_back = 0
        before, self._scheduled = self._scheduled, True  # written here, so that the tick's end need not do it
        try:
            for connection, data in held:
                connection.send(data)
        finally:
            self._scheduled = before
        self._write()

    def _write(self) -> None:
        self._gathered = 0
        dirty = self._dirty
        if dirty:
            self._dirty = []
            if len(dirty) <= FEW and not self._behind:
                for connection in dirty:
                    connection.write_out()
            else:
                self._write_many(deque(dirty))

    def _write_many(self, dirty: deque[Sender]) -> None:
        """Write for as long as a turn takes; the rest waits for one, behind those of whom there are few."""
        ends = self._turns.now_ns() + WRITE_NS
        while dirty:
            for _ in range(min(FEW, len(dirty))):
                dirty.popleft().write_out()
            if self._turns.now_ns() >= ends:
                break
        if dirty:
            if not self._behind:
                self._turns.wait(self._write_rest)
            self._behind += dirty

    def _write_rest(self) -> None:
        behind, self._behind = self._behind, deque()
        self._write_many(behind)

    def write_all(self) -> None:
        """This is the end: write everything, however long that takes."""
        self.flush()
        while self._behind:
            self._behind.popleft().write_out()


def _nobody_looks() -> None:
    """There is no limit on memory."""
