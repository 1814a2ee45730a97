"""Connections that have ended for the broker, but not for clients that read the rest: for so long, and so many at most.

They no longer count as connections, and each is an open file.
"""

import asyncio

from geomq.broker.connections.transport import Transport

FAREWELL_S = 10.0


class Endings:
    """`maximum` is how many there may be; None is no limit. A connection is known by its `id` until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, maximum: int | None) -> None:
        self._loop = loop
        self._maximum = maximum
        self._here: dict[int, Transport] = {}

    def __len__(self) -> int:
        return len(self._here)

    def allow(self, maximum: int | None) -> None:
        """The settings changed."""
        self._maximum = maximum

    def begin(self, connection: int, transport: Transport, *, reads: bool) -> None:
        """Let a client that reads have the rest; for one too many, the oldest is cut off."""
        if not reads:
            transport.abort()
            return
        self._here[connection] = transport
        transport.close()
        self._loop.call_later(FAREWELL_S, transport.abort)
        if self._maximum is not None and len(self._here) > self._maximum:
            self._here.pop(next(iter(self._here))).abort()

    def over(self, connection: int) -> None:
        """It is closed."""
        self._here.pop(connection, None)
