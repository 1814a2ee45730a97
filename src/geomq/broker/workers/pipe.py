"""The socket between a broker and one of its workers: bytes in both directions, descriptors from broker to worker.

What is written while the socket is full waits, in order. How much may wait, and what then, is up to who writes.
"""

import array
import asyncio
import contextlib
import errno
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

DESCRIPTORS_MAX: Final = 64
"""That go with one write; the system allows 253."""
_DESCRIPTOR_BYTES: Final = array.array("i").itemsize
BUFFER_BYTES: Final = 1 << 20
"""What the system is asked to hold on the way."""
_BUSY = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ETOOMANYREFS, errno.EINTR})
RETRY_S: Final = 0.01


class Pipe:
    """One end. `readable` is called when there is something to read, `lost` once, when the other end is gone."""

    def __init__(
        self,
        ours: socket.socket,
        loop: asyncio.AbstractEventLoop,
        *,
        readable: Callable[[], None],
        lost: Callable[[], None],
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = ours
        self._loop = loop
        self._lost = lost
        self._drained = drained
        self._waiting: deque[tuple[memoryview, tuple[socket.socket, ...]]] = deque()
        self.waiting_bytes = 0
        self._watching = self._closed = False
        ours.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            ours.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._readable = readable
        loop.add_reader(ours.fileno(), readable)

    # Reading.

    def read_into(self, space: memoryview) -> int:
        """How many bytes were there; 0 if there are none now, or never again."""
        if self._closed:
            return 0
        try:
            count = self._socket.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            count = 0
        if not count:
            self._lose()
        return count

    def read_with_descriptors(self, space: memoryview) -> tuple[int, list[int]]:
        """The same, with the descriptors that came along."""
        if self._closed:
            return 0, []
        found = array.array("i")
        try:
            room = socket.CMSG_SPACE(DESCRIPTORS_MAX * _DESCRIPTOR_BYTES)
            count, beside, flags, _ = self._socket.recvmsg_into([space], room)
        except (BlockingIOError, InterruptedError):
            return 0, []
        except OSError:
            count, beside, flags = 0, [], 0
        if flags & socket.MSG_CTRUNC:
            count = 0  # this process may not have that many open: which are missing cannot be told
        for level, kind, data in beside:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found.frombytes(data[: len(data) - len(data) % _DESCRIPTOR_BYTES])
        if not count:
            self._lose()
        return count, found.tolist()

    def pause(self) -> None:
        """`readable` is not called until `resume`."""
        if not self._closed:
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._readable)

    # Writing.

    def write(self, data: bytes, sockets: tuple[socket.socket, ...] = ()) -> None:
        """Send bytes, and sockets that are closed here as soon as they are on their way."""
        if self._closed:
            for each in sockets:
                each.close()
            return
        parts = [sockets[at : at + DESCRIPTORS_MAX] for at in range(0, len(sockets), DESCRIPTORS_MAX)] or [()]
        view = memoryview(data)
        # A descriptor may come before the frame that names it, not after it.
        for early in parts[:-1]:
            self._waiting.append((view[:1], early))
            view = view[1:]
        self._waiting.append((view, parts[-1]))
        self.waiting_bytes += len(data)
        if not self._watching:
            self._send()

    def _send(self) -> None:
        waiting = self._waiting
        while waiting:
            data, sockets = waiting[0]
            try:
                sent = self._send_some(data, sockets)
            except OSError as error:
                if error.errno in _BUSY:
                    self._watch(error.errno)
                else:
                    self._lose()
                return
            self.waiting_bytes -= sent
            if sent < len(data):
                waiting[0] = (data[sent:], ())
            else:
                waiting.popleft()
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._socket.fileno())
        self._drained()

    def _send_some(self, data: memoryview, sockets: tuple[socket.socket, ...]) -> int:
        if not sockets:
            return self._socket.send(data)
        numbers = array.array("i", [each.fileno() for each in sockets])
        sent = self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
        for each in sockets:
            each.close()
        return sent

    def _watch(self, busy: int) -> None:
        if not self._watching:
            self._watching = True
            self._loop.add_writer(self._socket.fileno(), self._send)
        if busy == errno.ETOOMANYREFS:  # the socket is writable, only not for descriptors
            self._loop.remove_writer(self._socket.fileno())
            self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        if not self._closed:
            self._watching = False
            self._send()

    def wait_until_below(self, size: int, timeout_s: float, clock_s: Callable[[], float]) -> bool:
        """Do nothing else until less than this waits; whether it does in time."""
        deadline = clock_s() + timeout_s
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLOUT)
        while not self._closed and self.waiting_bytes > size:
            left = deadline - clock_s()
            if left <= 0:
                return False
            poll.poll(min(left, 0.1) * 1000)
            self._send()
        return True

    # The end.

    def _lose(self) -> None:
        if not self._closed:
            self.close()
            self._lost()

    def close(self) -> None:
        """Nothing more is read or written; `lost` is not called."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        if self._watching:
            self._loop.remove_writer(self._socket.fileno())
        with contextlib.suppress(OSError):
            self._socket.close()
        for _, sockets in self._waiting:
            for each in sockets:
                each.close()
        self._waiting.clear()
        self.waiting_bytes = 0
