"""Bytes and descriptors go through a socket between two processes, wait while it is full, and end with it."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator

import pytest
from tests.broker.federated import until

from geomq.broker.workers.pipe import BUFFER_BYTES, DESCRIPTORS_MAX, Pipe

pytestmark = pytest.mark.anyio


class End:
    """One end, and what came in at it."""

    def __init__(self, ours: socket.socket) -> None:
        self.came = b""
        self.descriptors: list[int] = []
        self.lost = 0
        self.pipe = Pipe(ours, asyncio.get_running_loop(), readable=self._read, lost=self._lose)

    def _read(self) -> None:
        space = memoryview(bytearray(1 << 16))
        count, descriptors = self.pipe.read_with_descriptors(space)
        self.came += bytes(space[:count])
        self.descriptors += descriptors

    def _lose(self) -> None:
        self.lost += 1


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    ours, theirs = socket.socketpair()
    one, other = End(ours), End(theirs)
    yield one, other
    one.pipe.close()
    other.pipe.close()


async def test_descriptors_come_no_later_than_the_bytes_they_were_sent_with(ends: tuple[End, End]) -> None:
    one, other = ends
    count = 3 * DESCRIPTORS_MAX + 5
    pairs = [socket.socketpair() for _ in range(count)]
    one.pipe.write(b"x" * count, tuple(mine for mine, _ in pairs))
    await until(lambda: len(other.came) == count)
    assert len(other.descriptors) == count
    for number, (mine, theirs) in enumerate(pairs):
        assert mine.fileno() == -1, "it is closed here"
        with socket.socket(fileno=other.descriptors[number]) as passed, theirs:
            passed.sendall(b"%d" % number)
            assert theirs.recv(9) == b"%d" % number


async def test_what_the_socket_does_not_take_waits_in_order(ends: tuple[End, End]) -> None:
    one, other = ends
    other.pipe.pause()
    data = bytes(range(256)) * (BUFFER_BYTES // 64)
    one.pipe.write(data[:1000])
    one.pipe.write(data[1000:])
    assert one.pipe.waiting_bytes > 0
    other.pipe.resume()
    await until(lambda: len(other.came) == len(data))
    assert other.came == data
    assert one.pipe.waiting_bytes == 0


async def test_waiting_for_the_other_end_has_an_end() -> None:
    ours, theirs = socket.socketpair()
    one = End(ours)
    with theirs:
        one.pipe.write(b"x" * (8 * BUFFER_BYTES))
        assert not one.pipe.wait_until_below(1000, 0.01, time.monotonic)
        reader = threading.Thread(target=_read_all, args=(theirs,))
        reader.start()
        assert one.pipe.wait_until_below(1000, 30.0, time.monotonic)
        assert one.pipe.waiting_bytes <= 1000
        one.pipe.close()
        reader.join()


def _read_all(theirs: socket.socket) -> None:
    while theirs.recv(1 << 20):
        pass


async def test_each_end_hears_once_that_the_other_is_gone(ends: tuple[End, End]) -> None:
    one, other = ends
    one.pipe.write(b"last")
    one.pipe.close()
    await until(lambda: other.lost > 0)
    other.pipe.write(b"nobody reads this")
    await asyncio.sleep(0)
    assert (other.came, other.lost, one.lost) == (b"last", 1, 0)


async def test_sockets_that_cannot_go_any_more_are_closed(ends: tuple[End, End]) -> None:
    one, other = ends
    other.pipe.pause()
    one.pipe.write(b"x" * (8 * BUFFER_BYTES))
    waiting, theirs = socket.socketpair()
    late, theirs_too = socket.socketpair()
    with theirs, theirs_too:
        one.pipe.write(b"x", (waiting,))
        one.pipe.close()
        one.pipe.write(b"x", (late,))
        assert waiting.fileno() == late.fileno() == -1
