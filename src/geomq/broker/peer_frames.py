"""What a peer sends, cut into frames: four bytes of length, then so many bytes.

The socket reads straight into the buffer kept here, and a frame is a view of it: good until the next read, not longer.
"""

from collections.abc import Iterator

from geomq.errors import ProtocolError

BUFFER_BYTES = 1 << 20
"""Space for frames. A longer one gets a buffer of its own."""
FIRST_BYTES_MAX = 1 << 17
"""What a read may bring that begins between two frames, so that there is room for the rest of a frame behind it."""
SPACE_BYTES_MIN = 1 << 14
LONG_BYTES_MIN = 1 << 16
"""A read that brings the rest of such a frame brings nothing else, so that nothing has to be moved after it."""


class FrameBuffer:
    """Longer frames than `bytes_max` are refused; it may be changed from one frame to the next."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._buffer = memoryview(bytearray(SPACE_BYTES_MIN))
        self._start = self._end = 0
        """Where what is not cut yet begins and ends."""
        self._wanted = 4
        """How long the frame that begins there is, with its length, as far as that is known."""

    def space(self) -> memoryview:
        """Where the next read is to go."""
        buffer, start, end = self._buffer, self._start, self._end
        if start == end:
            self._start = self._end = 0
            usual = BUFFER_BYTES if self.bytes_max > SPACE_BYTES_MIN else SPACE_BYTES_MIN
            if len(buffer) != usual:
                self._buffer = memoryview(bytearray(usual))
            return self._buffer[:FIRST_BYTES_MAX]
        if len(buffer) - end < max(self._wanted - (end - start), SPACE_BYTES_MIN):
            if len(buffer) < self._wanted + SPACE_BYTES_MIN:
                self._buffer = memoryview(bytearray(self._wanted + SPACE_BYTES_MIN))
            self._buffer[: end - start] = buffer[start:end]
            self._start, self._end = 0, end - start
        return self._buffer[self._end : self._start + self._wanted if self._wanted >= LONG_BYTES_MIN else None]

    def cut(self, count: int) -> Iterator[memoryview]:
        """The frames that are whole now that `count` more bytes are there. Raises ProtocolError before one that is too
        long."""
        self._end += count
        while self._end - self._start >= 4:
            start = self._start
            length = int.from_bytes(self._buffer[start : start + 4], "big")
            if length > self.bytes_max:
                raise ProtocolError(f"a frame of {length} bytes is too long")
            self._wanted = 4 + length
            if self._end - start < self._wanted:
                return
            self._start += self._wanted
            self._wanted = 4
            yield self._buffer[start + 4 : self._start]
