"""Takes connections off listening sockets, and looks after them until they are established.

Who wants them is told as soon as they are accepted, so that TLS handshakes count as what they are: connections. While
few descriptors are left nothing is accepted; what comes waits with the system.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from geomq.broker.sockets.handshakes import Handshakes

log = logging.getLogger("geomq.broker")

BACKLOG: Final = 4_096
AT_ONCE: Final = 16
"""So many are accepted before others have their turn. Who connects only to leave is found out one turn later, so only a
few times as many ever look as if they were there."""
LOOK_AGAIN_S: Final = 0.1
"""How often a full process looks whether there are descriptors again."""
LOG_EVERY_S: Final = 60.0
IDLE_S: Final = 600
"""A connection that was silent for so long is probed by the system."""
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Arriving(Protocol):
    """A protocol that hears of its connection before it is established."""

    def arrived(self, transport: Any) -> bool:
        """A connection was accepted; False if there is no room for it. From now on `connection_lost` says that it
        ended, whether there was a `connection_made` or not."""

    def connection_lost(self, error: Exception | None) -> None: ...


class Pending:
    """A transport for an accepted connection whose handshake may not be over: it can only be ended."""

    def __init__(self, accepted: socket.socket, address: Any) -> None:
        self._socket = accepted
        self._address = address
        self._task: asyncio.Task[None] | None = None
        self._heir: Any = None
        """Who is told of the end in place of the protocol."""

    def establish(self, protocol: Arriving, connecting: Coroutine[Any, Any, None]) -> None:
        """Wait until it is connected with the protocol, or is not."""
        task = self._task = asyncio.get_running_loop().create_task(connecting)
        task.add_done_callback(lambda ended: self._ended(ended, protocol))

    def _ended(self, task: asyncio.Task[None], protocol: Arriving) -> None:
        if task.cancelled() or task.exception() is not None:
            self._socket.close()
            (self._heir or protocol).connection_lost(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._address if name == "peername" else default

    def abort(self) -> None:
        if self._task is None:
            self._socket.close()
        else:
            self._task.cancel()

    close = abort

    def write(self, data: bytes | memoryview) -> None:
        """Nobody can be told anything yet."""

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        """Nobody can be told anything yet."""

    def set_protocol(self, protocol: Any) -> None:
        self._heir = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """There is no buffer yet."""

    def pause_reading(self) -> None:
        """Nothing is read yet."""

    resume_reading = pause_reading


class Server(Protocol):
    """Open listening sockets; `addresses` are their hosts and ports."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]: ...

    def close(self) -> None: ...


class OpenServer(Protocol):
    """How to listen, as `open_server` does."""

    async def __call__(
        self,
        make: Callable[[], Arriving],
        host: str | None,
        port: int,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        end: int | None,
    ) -> Server: ...


Take = Callable[[Any, Any], bool]
"""Somebody else carries an accepted connection, which comes from this address, or does not."""


def here(
    make: Callable[[], Arriving], tls: Callable[[], ssl.SSLContext | None]
) -> Callable[[socket.socket, Any], None]:
    """This process carries it, if its protocol wants it. `tls` is asked for each connection."""
    handshakes = Handshakes(asyncio.get_running_loop())

    def take(accepted: socket.socket, address: Any) -> None:
        protocol, pending = make(), Pending(accepted, address)
        if protocol.arrived(pending):
            pending.establish(protocol, handshakes.connect(protocol, accepted, tls()))
        else:
            pending.abort()

    return take


class Acceptor:
    """Accepts from sockets that are bound, and hands on. `end` is the first number that a descriptor must not have."""

    def __init__(
        self, bound: Sequence[socket.socket], hand_on: Callable[[socket.socket, Any], None], *, end: int | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound = tuple(bound)
        self._hand_on = hand_on
        self._end = end
        self._paused: asyncio.TimerHandle | None = None
        self._logged_at = -LOG_EVERY_S
        self.addresses = [(str(each.getsockname()[0]), int(each.getsockname()[1])) for each in self._bound]
        for each in self._bound:
            each.listen(BACKLOG)
        self._go_on()

    def close(self) -> None:
        if self._paused is None:
            self._stop()
        else:
            self._paused.cancel()
        for each in self._bound:
            each.close()

    def _stop(self) -> None:
        for each in self._bound:
            self._loop.remove_reader(each.fileno())

    def _go_on(self) -> None:
        self._paused = None
        for each in self._bound:
            self._loop.add_reader(each.fileno(), self._accept, each)

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                self._pause()
                return
            number = accepted.fileno()
            accepted.setblocking(False)
            self._hand_on(accepted, address)
            if self._end is not None and number >= self._end:
                self._pause()
                return

    def _pause(self) -> None:
        """Descriptors run short: the rest waits until some are free again."""
        now = self._loop.time()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            log.warning("file descriptors run short: new connections wait", extra={"address": self.addresses[0]})
        self._stop()
        self._paused = self._loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        try:
            number = os.dup(self._bound[0].fileno())
        except OSError:
            enough = False
        else:
            os.close(number)
            enough = self._end is None or number < self._end
        if enough:
            self._go_on()
        else:
            self._paused = self._loop.call_later(LOOK_AGAIN_S, self._look_again)


async def open_server(
    make: Callable[[], Arriving],
    host: str | None,
    port: int,
    *,
    tls: Callable[[], ssl.SSLContext | None],
    end: int | None,
    take: Take | None = None,
) -> Server:
    """Listen on every address of a host, None for all of the machine; OSError if one cannot be had.

    This process carries what nobody takes.
    """
    loop = asyncio.get_running_loop()
    carry = here(make, tls)

    def hand_on(accepted: socket.socket, address: Any) -> None:
        if take is None or not take(accepted, address):
            carry(accepted, address)

    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            try:
                made = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # the system has no such protocol
            bound.append(made)
            _bind(made, family, address)
        return Acceptor(bound, carry if take is None else hand_on, end=end)
    except BaseException:
        for each in bound:
            each.close()
        raise


def _bind(made: socket.socket, family: int, address: tuple[Any, ...]) -> None:
    """What is accepted later has the same options."""
    made.setblocking(False)
    if os.name == "posix":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    # The system finds out about those that are gone without a word, also if they asked for no keep-alive.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    made.bind(address)
