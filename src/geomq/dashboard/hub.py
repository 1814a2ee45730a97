"""Hands messages to pages without ever waiting for one.

Each page has a short queue of its own. One that does not keep up loses what it missed and is sent the whole state
again when it reads on; nobody else notices.
"""

import asyncio
from collections.abc import Callable

QUEUE_MAX = 8


class Page:
    """One page. `next` gives what it is to be sent."""

    def __init__(self, whole: Callable[[], list[bytes]]) -> None:
        self._whole = whole
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MAX)
        self._behind = True

    def offer(self, message: bytes) -> None:
        """Queue a message, or note that this page fell behind."""
        if self._behind:
            return
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self._behind = True

    async def next(self) -> list[bytes]:
        """What to send now: the whole state first and after a gap, the changes otherwise."""
        if self._queue.empty() and self._behind:
            self._behind = False
            return self._whole()
        return [await self._queue.get()]


class Hub:
    """All pages that look on; at most `maximum`."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._listeners: set[Page] = set()
        self.somebody = asyncio.Event()

    def __len__(self) -> int:
        return len(self._listeners)

    def join(self, whole: Callable[[], list[bytes]]) -> Page | None:
        """A new page, or None if there are too many."""
        if len(self._listeners) >= self._maximum:
            return None
        listener = Page(whole)
        self._listeners.add(listener)
        self.somebody.set()
        return listener

    def leave(self, listener: Page) -> None:
        self._listeners.discard(listener)
        if not self._listeners:
            self.somebody.clear()

    def tell(self, message: bytes) -> None:
        for listener in self._listeners:
            listener.offer(message)
