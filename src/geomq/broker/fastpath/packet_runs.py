"""The bytes of plain PUBLISH packets that follow each other: which are alike, how they read in the other version."""

from functools import lru_cache

import numpy as np

from geomq.mqtt.codec.wire import varint

ONE_BY_ONE_MAX = 8
"""More packets of one length than this are compared at once:"""
AT_ONCE = 128
"""So many, and more the longer a run is, so that none are looked at in vain whose run ends soon."""


def end_of_run(data: bytes | memoryview, start: int, head_end: int, stop: int, end: int) -> int:
    """Where the last of the packets ends that follow, up to `end`, with the same length and topic."""
    size, length, head = stop - start, head_end - start, bytes(data[start:head_end])
    if data[stop : stop + length] != head:
        return stop
    at_once = AT_ONCE
    while (count := min((end - stop) // size, at_once)) > ONE_BY_ONE_MAX:
        if heads(data, stop, length, size, count) != head * count:
            break
        stop += count * size
        at_once *= 8
    while end - stop >= size and data[stop : stop + length] == head:
        stop += size
    return stop


def heads(data: bytes | memoryview, start: int, length: int, size: int, count: int) -> bytes:
    """The first bytes, `length` of them, of so many packets of one size."""
    if count == 1:
        return bytes(data[start : start + length])
    return np.ndarray((count,), _piece(length), data, start, (size,)).tobytes()


@lru_cache(4096)
def _piece(length: int) -> np.dtype[np.void]:
    """So many bytes, as numpy names them."""
    return np.dtype((np.void, length))


def as_v5(data: bytes, body: int, topic_end: int) -> bytes:
    """A 3.1.1 packet for MQTT 5: with an empty property list."""
    return b"0%b%b\0%b" % (varint(len(data) - body + 1), data[body:topic_end], data[topic_end:])


def as_old(data: bytes, body: int, topic_end: int) -> bytes:
    """An MQTT 5 packet for 3.1.1: without its empty property list."""
    return b"0%b%b%b" % (varint(len(data) - body - 1), data[body:topic_end], data[topic_end + 1 :])
