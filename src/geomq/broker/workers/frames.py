"""What a broker and its workers say to each other, as bytes. One frame holds what one side has to say in one tick.

A frame is a table and the data of all its entries, one after the other. The table says of each entry how long its data
is and what it means: its key. Most are bytes of a client or for one, and the key is just the number of the connection,
so that both sides make and take them in few steps.

Both ends are of one program on one machine, started together. A frame that makes no sense is their own fault, not a
client's, and ends the worker.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

from geomq.errors import ProtocolError

Data = bytes | memoryview

_HEAD: Final = struct.Struct("<II")
_ENTRY_BYTES: Final = 12
ENTRIES_MAX: Final = 1 << 14
PIECE_BYTES_MAX: Final = 1 << 17
"""Data of one entry is cut into pieces of at most so much."""
FRAME_DATA_MAX: Final = 1 << 18
"""A frame with more data than this takes nothing more."""
FRAME_BYTES_MAX: Final = _HEAD.size + ENTRIES_MAX * _ENTRY_BYTES + FRAME_DATA_MAX + 2 * PIECE_BYTES_MAX
TOGETHER_MAX: Final = PIECE_BYTES_MAX // 8
"""So many connections at most get the same piece by one entry."""
KIND: Final = 1 << 56
"""A key below this is the number of a connection, and means bytes; a key above is an Order or Report times this, plus a
number."""


class Order(IntEnum):
    """What a worker is to do, other than to write."""

    ADD = 1
    """Take a connection, with the descriptor that comes along; the data says by which of the TLS settings, if any."""
    WRITE_ALL = 2
    """Write to so many, who are named before the data."""
    CLOSE = 3
    ABORT = 4
    PAUSE = 5
    RESUME = 6
    LIMIT = 7
    """The data says how many bytes may wait to be sent before a connection counts as stalled."""
    SET_UP = 8
    """The TLS settings of listeners, for connections to come; READY is the answer."""
    PING = 9
    """READY is the answer."""
    WRITE_EOF = 10
    """Tell the client that nothing more comes, and go on to read what it sends."""


class Report(IntEnum):
    """What happened at a worker, other than that bytes came."""

    READY = 1
    """It is there, and does what it is told."""
    OPENED = 2
    """A connection is established; with data, it is encrypted, and that is the certificate of the client."""
    CLOSED = 3
    STALLED = 4
    FLOWING = 5
    LOG = 6
    """A line for the broker's log; the number is its level."""


BROKEN: Final = b"!"
"""With CLOSED: it did not end in order."""

Entry = tuple[int, bytes]
"""A key, and data."""


class Gathering:
    """What one side has to say. `due` is called once, and again after `take`, as soon as there is something."""

    def __init__(self, due: Callable[[], object]) -> None:
        self._due = due
        self._idle = True
        self._keys: list[int] = []
        self._data: list[Data] = []
        self._last: Data | None = None
        self._group: list[int] | None = None

    def write(self, number: int, data: Data) -> None:
        """Bytes of a connection, or for it. What goes to several, one after the other, is sent once."""
        if data is self._last:
            if self._group is None:
                self._group = [self._keys.pop()]
            self._group.append(number)
            return
        if self._group is not None:
            self._end_group()
        if self._idle:
            self._idle = False
            self._due()
        self._last = data
        self._keys.append(number)
        self._data.append(data)

    def say(self, what: Order | Report, number: int = 0, data: bytes = b"") -> None:
        """Anything else."""
        if self._group is not None:
            self._end_group()
        if self._idle:
            self._idle = False
            self._due()
        self._last = None
        self._keys.append(what * KIND + number)
        self._data.append(data)

    def _end_group(self) -> None:
        """The last data goes to all of a group."""
        group, self._group, self._last = self._group, None, None
        data = memoryview(self._data.pop())
        assert group is not None
        for start in range(0, len(group), TOGETHER_MAX):
            some = group[start : start + TOGETHER_MAX]
            named = struct.pack(f"<{len(some)}Q", *some)
            for at in range(0, len(data) or 1, PIECE_BYTES_MAX):
                self._keys.append(Order.WRITE_ALL * KIND + len(some))
                self._data.append(named + data[at : at + PIECE_BYTES_MAX])

    def take(self) -> bytes:
        """Everything that was gathered."""
        if self._group is not None:
            self._end_group()
        keys, data, self._keys, self._data = self._keys, self._data, [], []
        self._last, self._idle = None, True
        sizes = list(map(len, data))
        if sum(sizes) <= FRAME_DATA_MAX and len(keys) <= ENTRIES_MAX and max(sizes, default=0) <= PIECE_BYTES_MAX:
            return _frame(keys, sizes, data)
        return b"".join(_frames(keys, data))


def _frame(keys: list[int], sizes: list[int], data: list[Data]) -> bytes:
    count = len(keys)
    table = struct.pack(f"<II{count}Q{count}I", count, sum(sizes), *keys, *sizes)
    return b"".join((table, *data))


def _frames(keys: list[int], data: list[Data]) -> Iterator[bytes]:
    """As many frames as it takes."""
    some: list[int] = []
    sizes: list[int] = []
    parts: list[Data] = []
    size = 0
    for key, whole in zip(keys, data, strict=True):
        for piece in _pieces(key, whole):
            some.append(key)
            sizes.append(len(piece))
            parts.append(piece)
            size += len(piece)
            if size >= FRAME_DATA_MAX or len(some) == ENTRIES_MAX:
                yield _frame(some, sizes, parts)
                some, sizes, parts, size = [], [], [], 0
    if some:
        yield _frame(some, sizes, parts)


def _pieces(key: int, data: Data) -> Iterator[Data]:
    """Bytes may be cut anywhere, and arrive as they were; nothing else is long."""
    if key >= KIND or len(data) <= PIECE_BYTES_MAX:
        yield data
        return
    view = memoryview(data)
    for at in range(0, len(view), PIECE_BYTES_MAX):
        yield view[at : at + PIECE_BYTES_MAX]


def many(count: int, data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Who is named in a WRITE_ALL, and what to write to each."""
    if 8 * count > len(data):
        raise ProtocolError("an entry names more connections than it holds")
    return struct.unpack_from(f"<{count}Q", data), data[8 * count :]


class Cutter:
    """Takes frames apart that arrive in its own buffer."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(2 * FRAME_BYTES_MAX))
        self._begin = self._end = 0

    def space(self) -> memoryview:
        """Where to put what arrives next; never empty, as all whole frames are taken out before."""
        if self._begin:
            rest = bytes(self._buffer[self._begin : self._end])
            self._buffer[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        return self._buffer[self._end :]

    def filled(self, count: int) -> None:
        """So many bytes arrived there."""
        self._end += count

    def entries(self) -> Iterator[Entry]:
        """Of all whole frames, in their order; `space` must not be asked for before the last."""
        while self._end - self._begin >= _HEAD.size:
            count, size = _HEAD.unpack_from(self._buffer, self._begin)
            table = self._begin + _HEAD.size
            body = table + count * _ENTRY_BYTES
            if count > ENTRIES_MAX or size > FRAME_BYTES_MAX - ENTRIES_MAX * _ENTRY_BYTES - _HEAD.size:
                raise ProtocolError(f"a frame of {count} entries and {size} bytes")
            if body + size > self._end:
                return
            keys_sizes = struct.unpack_from(f"<{count}Q{count}I", self._buffer, table)
            data = bytes(self._buffer[body : body + size])
            self._begin = body + size
            at = 0
            for key, length in zip(keys_sizes[:count], keys_sizes[count:], strict=True):
                yield key, data[at : at + length]
                at += length
            if at != size:
                raise ProtocolError("a frame holds more or less than it says")
