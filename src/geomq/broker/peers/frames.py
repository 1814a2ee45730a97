"""What a peer sends, cut into frames: four bytes of length, then so many bytes.

The socket reads straight into buffers made here, and a frame is a view of one. That of a short frame is good until the
next read, not longer. A long frame has a buffer of its own, which is there as long as anything of it is held.
"""

from collections.abc import Iterator

import numpy as np

from geomq.errors import ProtocolError

LONG_BYTES_MIN = 1 << 16
"""A frame of so many bytes has a buffer of its own."""
BUFFER_BYTES = 1 << 18
"""What all others share."""
FIRST_BYTES = 1 << 14
"""What a read may bring after a long frame, so that little of another one has to be moved to its own buffer. Also all
that is spent on somebody who may send only a few bytes."""


class FrameBuffer:
    """Longer frames than `bytes_max` are refused."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = memoryview(bytearray(FIRST_BYTES))
        self._start = self._end = 0
        """Where what is not cut yet begins and ends."""
        self._long: memoryview | None = None
        """The long frame that is coming."""
        self._there = 0
        """How much of it is there."""
        self._was_long = False
        """Whether the frame that began last was a long one."""

    def allow(self, bytes_max: int) -> None:
        """From the next frame on so long ones are taken."""
        self._bytes_max = bytes_max

    def space(self) -> memoryview:
        """Where the next read is to go."""
        if self._long is not None:
            return self._long[self._there :]
        buffer, start, end = self._buffer, self._start, self._end
        room = 4 + min(self._bytes_max, LONG_BYTES_MIN)
        if start == end or len(buffer) - start < room:
            if len(buffer) < room:
                self._buffer = memoryview(bytearray(BUFFER_BYTES))
            self._buffer[: end - start] = buffer[start:end]
            self._start, self._end = 0, end - start
        return self._buffer[self._end : self._end + FIRST_BYTES if self._was_long else None]

    def cut(self, count: int) -> Iterator[memoryview]:
        """The frames that are whole now that `count` more bytes are there. Raises ProtocolError before one that is too
        long."""
        if self._long is not None:
            self._there += count
            if self._there == len(self._long):
                frame, self._long = self._long, None
                yield frame
            return
        self._end += count
        while (there := self._end - self._start - 4) >= 0:
            begins = self._start + 4
            length = int.from_bytes(self._buffer[self._start : begins], "big")
            if length > self._bytes_max:
                raise ProtocolError(f"a frame of {length} bytes is too long")
            self._was_long = length >= LONG_BYTES_MIN
            if self._was_long:
                frame, there = np.empty(length, np.uint8).data, min(there, length)
                frame[:there] = self._buffer[begins : begins + there]
                self._start = begins + there
                if there < length:
                    self._long, self._there = frame, there
                    return
                yield frame
            elif there < length:
                return
            else:
                self._start = begins + length
                yield self._buffer[begins : self._start]
