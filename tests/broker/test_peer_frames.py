"""Frames come out as they went in, however the bytes were split on the way; too long ones are refused."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.peer_frames import BUFFER_BYTES, FIRST_BYTES_MAX, SPACE_BYTES_MIN, FrameBuffer
from geomq.errors import ProtocolError
from geomq.routing.plan import BATCH_BYTES_MAX


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


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.sampled_from((0, 1, 3, 300, SPACE_BYTES_MIN, 70_000, BUFFER_BYTES + 5)), max_size=6),
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
        buffer.bytes_max = 100
    assert got == [b"1234", b"longer than four"]


def test_before_names_are_proved_a_connection_costs_little_memory_and_a_long_frame_only_while_it_comes() -> None:
    buffer = FrameBuffer(1024)
    assert len(buffer.space()) == SPACE_BYTES_MIN
    buffer.bytes_max = 1 << 24
    assert len(buffer.space()) == FIRST_BYTES_MAX
    assert feed(buffer, framed([b"x" * (3 * BUFFER_BYTES)])) == [b"x" * (3 * BUFFER_BYTES)]
    assert len(buffer.space()) == FIRST_BYTES_MAX
    assert len(buffer._buffer) == BUFFER_BYTES


def test_what_was_read_of_a_batch_stays_where_it_is() -> None:
    buffer, stream = FrameBuffer(1 << 24), framed([b"x" * BATCH_BYTES_MAX] * 5)
    reads = 0
    while stream:
        start, holds = buffer._start, buffer._start != buffer._end
        taken = min(len(buffer.space()), len(stream))
        assert not holds or buffer._start == start
        buffer.space()[:taken] = stream[:taken]
        list(buffer.cut(taken))
        stream, reads = stream[taken:], reads + 1
    assert reads == 10
