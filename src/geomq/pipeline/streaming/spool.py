"""The spool: PUBLISH packets as they arrived, on disk, each with a number, until Spark is done with them.

    <directory>/lock            held by the one reader
    <directory>/session.json    what the session is subscribed to
    <directory>/born            the number it began with
    <directory>/committed       the number before which Spark is done
    <directory>/<number>.spool  packets from that number on, in chunks

A chunk is a header and packets; it is whole or not there. The first number of a new spool is the time of its birth in
microseconds, so that a spool that was lost and begun anew never gives a number twice.
"""

import contextlib
import fcntl
import os
import struct
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from geomq.errors import DataError, UsageError

SEGMENT_BYTES = 32 << 20
LOCK_PATIENCE_S = 15.0
_HEADER = struct.Struct("<4sIIQQQ")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
_MAGIC = b"gmq1"


class Chunk(NamedTuple):
    """Packets `first` to `first + packets`, as `size` bytes at `offset` of a segment.

    `first_id` is `first`, or for a repeated packet the number it had the first time.
    """

    segment: str
    offset: int
    size: int
    packets: int
    first: int
    first_id: int
    arrived_us: int

    @property
    def end(self) -> int:
        return self.first + self.packets


class Piece(NamedTuple):
    """Some packets of a chunk: `take` of them after the first `skip`."""

    chunk: Chunk
    skip: int
    take: int


class Spool:
    """Open one per session. One thread may append while another reads and commits."""

    def __init__(self, directory: Path, *, keep: int, bytes_max: int = 1 << 50) -> None:
        self.directory = directory
        self.keep = keep
        self.bytes_max = bytes_max
        self.chunks: list[Chunk] = []
        self.bytes = 0
        self._file: IO[bytes] | None = None
        self._file_size = 0
        self._changing = threading.Lock()
        self._end = self._safe_end = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory / "lock")
            try:
                self.born = self._number("born") or self._give_birth()
                self.committed = self._number("committed")
                self._load()
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            raise DataError(f"spool {directory}: {error.strerror or error}") from None

    @property
    def end(self) -> int:
        """The number after the last packet that is safe."""
        return self._safe_end

    @property
    def begin(self) -> int:
        """The first number Spark is not done with."""
        return max(self.committed, self.chunks[0].first if self.chunks else self._end)

    @property
    def is_full(self) -> bool:
        """Whether Spark should catch up first. What it is done with does not count: it may have to stay for long."""
        return self.bytes > self.bytes_max and self._uncommitted() > self.bytes_max

    def _uncommitted(self) -> int:
        size = 0
        for chunk in reversed(self.chunks):
            if chunk.end <= self.committed:
                break
            size += HEADER_BYTES + chunk.size
        return size

    def append(self, packets: bytes, count: int, *, repeats: int | None = None) -> Chunk:
        """Write packets; they are safe after `sync`. `repeats` is the number of the packet that this one repeats."""
        if self._file is None or self._file_size >= SEGMENT_BYTES:
            self._begin_segment()
        assert self._file is not None
        first = self._end
        chunk = Chunk(
            os.path.basename(self._file.name),
            self._file_size + HEADER_BYTES,
            len(packets),
            count,
            first,
            first if repeats is None else repeats,
            time.time_ns() // 1000,
        )
        header = _HEADER.pack(_MAGIC, len(packets), count, chunk.first, chunk.first_id, chunk.arrived_us)
        self._file.write(header + _CRC.pack(zlib.crc32(packets, zlib.crc32(header))) + packets)
        self._file_size += HEADER_BYTES + len(packets)
        with self._changing:
            self.bytes += HEADER_BYTES + len(packets)
            self.chunks.append(chunk)
            self._end = first + count
        return chunk

    def sync(self) -> None:
        """Everything appended is on the disk when this returns."""
        if self._file is not None:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._safe_end = self._end

    def pieces(self, start: int, end: int) -> list[Piece]:
        """The packets from `start` to before `end`, as far as they are here."""
        chunks = self.chunks
        found = []
        first = max(0, bisect_right(chunks, start, key=lambda chunk: chunk.first) - 1)
        for chunk in chunks[first:]:
            low, high = max(start, chunk.first), min(end, chunk.end)
            if chunk.first >= end:
                break
            if low < high:
                found.append(Piece(chunk, low - chunk.first, high - low))
        return found

    def commit(self, number: int) -> None:
        """Spark is done with everything before `number`: forget it, but if there is room the last `keep` packets."""
        if number <= self.committed:
            return
        self.committed = number
        partial = self.directory / "committed.partial"
        partial.write_text(str(number))
        os.replace(partial, self.directory / "committed")
        forgettable = number if self.bytes > self.bytes_max else min(number, self._end - self.keep)
        # A segment goes when the next one begins early enough; the one being written stays.
        segments = list(dict.fromkeys(chunk.segment for chunk in self.chunks))
        gone = {old for old, new in pairwise(segments) if _first_of(new) <= forgettable}
        if not gone:
            return
        with self._changing:
            self.bytes -= sum(HEADER_BYTES + chunk.size for chunk in self.chunks if chunk.segment in gone)
            self.chunks = [chunk for chunk in self.chunks if chunk.segment not in gone]
        for segment in gone:
            (self.directory / segment).unlink(missing_ok=True)

    def tail(self) -> Iterator[tuple[Chunk, bytes]]:
        """The last chunks that hold at least `keep` packets, with their packets, oldest first."""
        if self._file is not None:
            self._file.flush()
        wanted: list[Chunk] = []
        count = 0
        for chunk in reversed(self.chunks):
            wanted.append(chunk)
            count += chunk.packets
            if count >= self.keep:
                break
        for chunk in reversed(wanted):
            yield chunk, read_chunk(self.directory, chunk)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._lock.close()

    def _begin_segment(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
        self._file = open(self.directory / f"{self._end:020}.spool", "ab")  # noqa: SIM115
        self._file_size = 0
        folder = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _number(self, name: str) -> int:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.directory / name).read_text())
        return 0

    def _give_birth(self) -> int:
        now_us = time.time_ns() // 1000
        (self.directory / "born").write_text(str(now_us))
        return now_us

    def _load(self) -> None:
        segments = sorted(self.directory.glob("*.spool"))
        self._end = self.born if not segments else _first_of(segments[-1].name)
        for segment in segments:
            size = segment.stat().st_size
            good = 0
            for chunk in _scan(segment):
                self.chunks.append(chunk)
                good = chunk.offset + chunk.size
                self._end = chunk.end
            self.bytes += good
            if good < size and segment is not segments[-1]:
                raise DataError(f"spool {segment} is damaged after byte {good}; events after it may be lost")
            if good < size:
                # The reader died while writing; what it had not written whole it had not acknowledged.
                os.truncate(segment, good)
        if self._end < self.committed:
            # Segments are gone. Numbers that Spark is done with must not be given again: a gap is noticed.
            self._end = max(self.committed, self._give_birth())
        self._safe_end = self._end


def read_chunk(directory: Path, chunk: Chunk) -> bytes:
    """The packets of a chunk."""
    try:
        with open(directory / chunk.segment, "rb") as file:
            file.seek(chunk.offset - HEADER_BYTES)
            data = file.read(HEADER_BYTES + chunk.size)
    except OSError as error:
        raise DataError(
            f"spool {directory / chunk.segment} cannot be read here: {error.strerror}; option spool must be a"
            " directory that all executors share"
        ) from None
    header, crc, packets = data[: _HEADER.size], data[_HEADER.size : HEADER_BYTES], data[HEADER_BYTES:]
    if len(packets) != chunk.size or crc != _CRC.pack(zlib.crc32(packets, zlib.crc32(header))):
        raise DataError(f"spool {directory / chunk.segment} is damaged at byte {chunk.offset}")
    return packets


def _scan(segment: Path) -> Iterator[Chunk]:
    """The whole chunks of a segment."""
    with open(segment, "rb") as file:
        while True:
            head = file.read(HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                return
            magic, size, count, first, first_id, arrived_us = _HEADER.unpack(head[: _HEADER.size])
            packets = file.read(size) if magic == _MAGIC else b""
            if len(packets) < size or head[_HEADER.size :] != _CRC.pack(
                zlib.crc32(packets, zlib.crc32(head[: _HEADER.size]))
            ):
                return
            yield Chunk(segment.name, file.tell() - size, size, count, first, first_id, arrived_us)


def _first_of(segment: str) -> int:
    try:
        return int(segment.removesuffix(".spool"))
    except ValueError:
        raise DataError(f"{segment} is not a file of a spool") from None


def _locked(path: Path) -> IO[bytes]:
    """Hold the lock; a reader whose driver was just killed gets a moment to notice."""
    file = open(path, "ab")  # noqa: SIM115
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            file.close()
            raise UsageError(
                f"another query reads through the spool {path.parent}; give one of them another session"
            ) from None
        return file
