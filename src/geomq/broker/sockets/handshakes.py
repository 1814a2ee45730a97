"""TLS handshakes with clients: one that fails tells the client why, by TLS's own alert, and the log, at a bounded rate.

The event loop closes a connection as soon as its handshake fails, before the alert has gone. Here the loop is told
instead that more is to come, so that it sends the alert and waits until the client has closed, or time is over.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

log = logging.getLogger("geomq.broker")

HANDSHAKE_S_MAX: Final = 10.0
IGNORED_BYTES_MAX: Final = 1 << 16
"""What a client may send after its handshake has failed, before it is cut off."""
LINES_MAX: Final = 10
LINES_S: Final = 10.0
"""So many lines at most in so long."""

_UNFINISHED = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
Refuse = Callable[[str], object]
_REFUSE: ContextVar[Refuse | None] = ContextVar("_REFUSE", default=None)
"""What is to be done with the reason why the handshake fails that this task begins."""


class _Handshake(ssl.SSLObject):
    """The server's side of one connection."""

    _refuse: Refuse | None = None
    _incoming: Any = None
    _outgoing: Any = None
    _failed: ssl.SSLError | None = None
    _ignored = 0

    def watch(self, incoming: Any, outgoing: Any, refuse: Refuse) -> None:
        """Say why, should it fail; these are the bytes that came and those that are to go."""
        self._incoming, self._outgoing, self._refuse = incoming, outgoing, refuse

    def do_handshake(self) -> None:
        if self._failed is not None:
            self._ignored += len(self._incoming.read())
            if self._ignored > IGNORED_BYTES_MAX:
                raise self._failed
            raise ssl.SSLWantReadError
        try:
            super().do_handshake()
        except _UNFINISHED:
            raise
        except ssl.SSLError as error:
            if self._refuse is None:
                raise
            self._refuse(_reason(error))
            if not self._outgoing.pending:
                raise
            self._failed = error
            raise ssl.SSLWantReadError from None  # so that the alert goes out


class ServerContext(ssl.SSLContext):
    """Makes the server's side of connections."""

    sslobject_class = _Handshake

    def wrap_bio(self, incoming: Any, outgoing: Any, *args: Any, **more: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **more)
        refuse = _REFUSE.get()
        if refuse is not None and isinstance(made, _Handshake):
            made.watch(incoming, outgoing, refuse)
        return made


class Handshakes:
    """Of the connections to one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines = self._unlogged = 0
        self._lines_since = -LINES_S

    async def connect(self, protocol: Any, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Join an accepted connection with its protocol; run it as a task of its own."""
        _REFUSE.set(lambda reason: self._note(accepted, reason))  # in this task alone
        limit_s = None if tls is None else HANDSHAKE_S_MAX
        await self._loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls, ssl_handshake_timeout=limit_s)

    def _note(self, accepted: socket.socket, reason: str) -> None:
        """Log a refusal, and of too many how many there were."""
        now = self._loop.time()
        if now - self._lines_since >= LINES_S:
            self._lines_since, self._lines = now, 0
        self._lines += 1
        if self._lines > LINES_MAX:
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        more = f" (and {unlogged} more before)" if unlogged else ""
        log.info("client at %s: TLS refused: %s%s", _host(accepted), reason, more)


def _reason(error: ssl.SSLError) -> str:
    """What OpenSSL says, short."""
    why = getattr(error, "verify_message", None) or error.reason or type(error).__name__
    return str(why).replace("_", " ").lower()


def _host(accepted: socket.socket) -> str:
    """Where it comes from, if it is still there."""
    try:
        address = accepted.getpeername()
    except OSError:
        return "?"
    return str(address[0]) if isinstance(address, tuple) and address else "local"
