"""Frames come out as they went in, however the bytes were split on the way; too long ones are refused."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.peers.frames import BUFFER_BYTES, FIRST_BYTES, LONG_BYTES_MIN, FrameBuffer
from geomq.errors import ProtocolError
from geomq.routing.core.plan import BATCH_BYTES_MAX


def feed(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """What comes out when the socket brings this, as much at a time as there is space for."""
    frames = []
    while data:
        space = buffer.space()
        taken = min(len(space), len(data))
        space[:taken] = data[:taken]
        frames += [bytes(frame) for frame in buffer.cut(taken)]
        data = data[taken:]
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@settings(max_examples=100)
@given(
    sizes=st.lists(
        st.sampled_from(
            (0, 1, 3, 300, FIRST_BYTES, LONG_BYTES_MIN - 1, LONG_BYTES_MIN, BUFFER_BYTES - 5, BUFFER_BYTES + 5)
        ),
        max_size=6,
    ),
    cuts=st.lists(st.integers(0, 1 << 22), max_size=12),
)
def test_frames_survive_any_split(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stream, buffer = framed(frames), FrameBuffer(1 << 24)
    marks = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    got = [frame for start, end in pairwise(marks) for frame in feed(buffer, stream[start:end])]
    assert got == frames


def test_bytes_that_come_one_by_one_make_frames_too() -> None:
    frames = [b"", b"a", b"bc" * 40]
    buffer = FrameBuffer(100)
    assert [frame for byte in framed(frames) for frame in feed(buffer, bytes([byte]))] == frames


def test_a_frame_that_is_too_long_is_refused_as_soon_as_its_length_is_known() -> None:
    buffer = FrameBuffer(10)
    with pytest.raises(ProtocolError, match="11 bytes is too long"):
        feed(buffer, framed([b"well"]) + (11).to_bytes(4, "big"))


def test_the_bound_may_be_raised_between_two_frames_of_one_read() -> None:
    buffer = FrameBuffer(4)
    stream = framed([b"1234", b"longer than four"])
    space = buffer.space()
    space[: len(stream)] = stream
    got = []
    for frame in buffer.cut(len(stream)):
        got.append(bytes(frame))
        buffer.allow(100)
    assert got == [b"1234", b"longer than four"]


def test_before_names_are_proved_a_connection_costs_little_memory() -> None:
    buffer = FrameBuffer(1024)
    assert feed(buffer, framed([b"x" * 1000] * 40)) == [b"x" * 1000] * 40
    assert len(buffer._buffer) == FIRST_BYTES
    buffer.allow(1 << 24)
    assert len(buffer.space()) == BUFFER_BYTES


def test_a_long_frame_is_there_as_long_as_anything_of_it_is_held() -> None:
    buffer, stream = FrameBuffer(1 << 24), b"".join(framed([bytes([n]) * LONG_BYTES_MIN]) for n in range(20))
    held = []
    while stream:
        space = buffer.space()
        taken = min(len(space), len(stream))
        space[:taken] = stream[:taken]
        held += [frame[7:20] for frame in buffer.cut(taken)]
        stream = stream[taken:]
    assert held == [bytes([n]) * 13 for n in range(20)]


def test_little_is_moved_of_long_frames_that_follow_each_other() -> None:
    buffer, stream = FrameBuffer(1 << 24), framed([b"x" * BATCH_BYTES_MAX] * 5)
    reads = []
    while stream:
        reads.append(min(len(buffer.space()), len(stream)))
        buffer.space()[: reads[-1]] = stream[: reads[-1]]
        list(buffer.cut(reads[-1]))
        stream = stream[reads[-1] :]
    assert reads[2:] == [FIRST_BYTES, BATCH_BYTES_MAX + 4 - FIRST_BYTES] * 4
