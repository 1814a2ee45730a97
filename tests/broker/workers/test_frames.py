"""What is said at one end comes out at the other, in order; what was mangled is noticed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.workers.frames import (
    ENTRIES_MAX,
    FRAME_BYTES_MAX,
    KIND,
    PIECE_BYTES_MAX,
    TOGETHER_MAX,
    Cutter,
    Gathering,
    Order,
    Report,
    many,
)
from geomq.errors import ProtocolError

SHARED = (b"to many", b"", b"x" * 300)
Said = tuple[int, int, bytes]
"""What (0 for bytes), which connection, and the data."""

writes = st.tuples(st.just(0), st.integers(0, 5), st.sampled_from(SHARED) | st.binary(max_size=40))
others = st.tuples(st.sampled_from([int(Order.CLOSE), int(Order.LIMIT)]), st.integers(0, 5), st.binary(max_size=9))


def say(gathering: Gathering, said: Said) -> None:
    what, number, data = said
    if what:
        gathering.say(Order(what), number, data)
    else:
        gathering.write(number, data)


def cut(data: bytes, sizes: list[int]) -> list[tuple[int, bytes]]:
    """Read in pieces of these sizes, and then in the largest that go."""
    cutter, found = Cutter(), []
    while data:
        space = cutter.space()
        count = min(len(data), len(space), sizes.pop() if sizes else len(space))
        space[:count], data = data[:count], data[count:]
        cutter.filled(count)
        found += list(cutter.entries())
    return found


def told(entries: list[tuple[int, bytes]]) -> list[Said]:
    """With what went to many as if it had gone to each, and pieces joined."""
    found: list[Said] = []
    for key, data in entries:
        what, number = divmod(key, KIND)
        if what == Order.WRITE_ALL:
            numbers, piece = many(number, data)
            found += [(0, each, piece) for each in numbers]
        else:
            found.append((what, number, data))
    return found


@given(st.lists(st.lists(writes | others, max_size=30), max_size=4), st.lists(st.integers(1, 50), max_size=40))
def test_what_is_said_arrives_in_order(ticks: list[list[Said]], sizes: list[int]) -> None:
    due: list[int] = []
    gathering = Gathering(lambda: due.append(1))
    sent = b""
    for tick in ticks:
        for said in tick:
            say(gathering, said)
        sent += gathering.take()
    assert told(cut(sent, sizes)) == [said for tick in ticks for said in tick]
    assert len(due) == sum(1 for tick in ticks if tick)


def test_what_goes_to_many_goes_once() -> None:
    gathering, data = Gathering(lambda: None), b"x" * 1_000
    for number in range(1_000):
        gathering.write(number, data)
    sent = gathering.take()
    assert len(sent) < 10_000
    assert told(cut(sent, [])) == [(0, number, data) for number in range(1_000)]


@pytest.mark.parametrize("receivers", [1, 3])
def test_what_is_long_comes_in_pieces(receivers: int) -> None:
    gathering, data = Gathering(lambda: None), bytes(range(256)) * (5 * PIECE_BYTES_MAX // 512)
    for number in range(receivers):
        gathering.write(number, data)
    gathering.say(Order.CLOSE, 0)
    entries = cut(gathering.take(), [])
    got = dict.fromkeys(range(receivers), b"")
    for what, number, piece in told(entries)[:-1]:
        assert what == 0
        got[number] += piece
    assert got == dict.fromkeys(range(receivers), data)
    assert told(entries)[-1] == (Order.CLOSE, 0, b"")
    assert max(len(piece) for _, piece in entries) <= 2 * PIECE_BYTES_MAX


def test_more_than_a_frame_takes_goes_in_several() -> None:
    gathering, data = Gathering(lambda: None), b"to all"
    for number in range(ENTRIES_MAX + 10):
        gathering.write(number, b"%d" % number)
    for number in range(TOGETHER_MAX + 10):
        gathering.write(number, data)
    found = told(cut(gathering.take(), []))
    assert found[: ENTRIES_MAX + 10] == [(0, number, b"%d" % number) for number in range(ENTRIES_MAX + 10)]
    assert found[ENTRIES_MAX + 10 :] == [(0, number, data) for number in range(TOGETHER_MAX + 10)]


@pytest.mark.parametrize(
    "mangled",
    [
        struct.pack("<II", ENTRIES_MAX + 1, 0),
        struct.pack("<II", 0, FRAME_BYTES_MAX),
        struct.pack("<IIQI", 1, 1, 7, 2) + b"x",
        struct.pack("<IIQI", 1, 2, 7, 1) + b"xx",
    ],
)
def test_a_frame_that_makes_no_sense_is_refused(mangled: bytes) -> None:
    with pytest.raises(ProtocolError):
        cut(mangled, [])


def test_an_entry_for_many_that_names_too_few_is_refused() -> None:
    with pytest.raises(ProtocolError):
        many(2, b"\0" * 15)


def test_reports_and_orders_are_told_from_bytes() -> None:
    gathering = Gathering(lambda: None)
    gathering.say(Report.LOG, 40, b"text")
    ((key, data),) = cut(gathering.take(), [])
    assert (divmod(key, KIND), data) == ((Report.LOG, 40), b"text")
