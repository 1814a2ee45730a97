"""RocksDB's write-ahead logs as files: a look at the heads of their records before the database reads them.

A log is a row of blocks of 32 KiB; a record has a checksum of four bytes, a length of two and a type of one, and none
begins in the last six bytes of a block. RocksDB checks the rest itself, but never returns from a type that it does not
know (10.4.2), so those have to be found first.
"""

import glob
import mmap
import os

BLOCK = 32_768
HEAD = 7
TYPES = frozenset({1, 2, 3, 4})
"""Whole, first, middle and last piece of a batch."""


def logs_with_content(folder: str) -> list[str]:
    """The paths of the logs that hold anything, oldest first."""
    return [path for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.log"))) if os.path.getsize(path)]


def unknown_record(path: str) -> int | None:
    """Where the first record of an unknown type begins. Zeros are room that was never written."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        pos, end = 0, len(data)
        while pos + HEAD <= end:
            left = BLOCK - pos % BLOCK
            if left < HEAD:
                pos += left
                continue
            kind = data[pos + 6]
            if kind == 0:
                pos += left
            elif kind not in TYPES:
                return pos
            else:
                length = data[pos + 4] | data[pos + 5] << 8
                # A length that leaves the block is damage that RocksDB sees, too; the next block begins anew.
                pos += min(HEAD + length, left)
    return None


def make_skippable(path: str) -> int:
    """Give every record of an unknown type one that RocksDB knows: its checksum shows the damage, and it is skipped,
    or read after all, if only the type was wrong. How many there were."""
    count = 0
    with open(path, "r+b") as file:
        while (at := unknown_record(path)) is not None:
            file.seek(at + 6)
            file.write(b"\1")
            file.flush()
            count += 1
    return count
