"""Connections that have ended for the broker, but not for clients that read the rest: for so long, and so many at most.

They no longer count as connections, and each is an open file. A client that is told why is given the time to read it:
the broker says that nothing more comes, and takes in and forgets what the client sends meanwhile, so much at most. Were
the connection closed at once, what the client had on its way would make the system throw the reason away.
"""

import asyncio
from typing import Final

from geomq.broker.connections.transport import Transport

FAREWELL_S = 10.0
"""How long what was written may take to go."""
LINGER_S = 2.0
"""How long a client that was told why may take to close."""
TLS_LINGER_S = 0.5
"""The same where the end cannot be told without closing."""
DRAIN_BYTES_MAX: Final = 1 << 20
"""What such a client may send meanwhile."""


class Ending(asyncio.Protocol):
    """One connection on its way out, in place of the one that it was."""

    def __init__(self, endings: "Endings", transport: Transport) -> None:
        self._endings = endings
        self._transport = transport
        self._drained = 0

    def linger(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the client to close, unless it takes too long."""
        if self._transport.can_write_eof():
            linger_s = LINGER_S
            try:
                self._transport.write_eof()
            except OSError:  # the client has gone
                self._transport.abort()
                return
        elif self._transport.get_extra_info("ssl_object") is not None:
            linger_s = TLS_LINGER_S
        else:
            self._transport.close()
            return
        self._transport.resume_reading()
        loop.call_later(linger_s, self._transport.close)

    def data_received(self, data: bytes) -> None:
        self._drained += len(data)
        if self._drained > DRAIN_BYTES_MAX:
            self._transport.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._endings.over(self)


class Endings:
    """`maximum` is how many there may be; None is no limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, maximum: int | None) -> None:
        self._loop = loop
        self._maximum = maximum
        self._here: dict[Ending, Transport] = {}

    def __len__(self) -> int:
        return len(self._here)

    def allow(self, maximum: int | None) -> None:
        """The settings changed."""
        self._maximum = maximum

    def begin(self, transport: Transport, *, reads: bool, told: bool = False) -> None:
        """Let a client that reads have the rest, and one that was `told` why the time to see it; for one too many, the
        oldest is cut off."""
        if not reads:
            transport.abort()
            return
        ending = Ending(self, transport)
        self._here[ending] = transport
        transport.set_protocol(ending)
        if told:
            ending.linger(self._loop)
        else:
            transport.close()
        self._loop.call_later(FAREWELL_S, transport.abort)
        if self._maximum is not None and len(self._here) > self._maximum:
            self._here.pop(next(iter(self._here))).abort()

    def over(self, ending: Ending) -> None:
        """It is closed."""
        self._here.pop(ending, None)

    def close(self) -> None:
        """Wait for nobody any more."""
        for transport in tuple(self._here.values()):
            transport.close()
