"""When bytes leave: together at the end of a tick, or at once while arrivals are lonely."""

from collections.abc import Callable
from typing import Any

from geomq.broker.state.turns import Turns
from geomq.broker.storage.memory import MemoryStore
from geomq.broker.storage.outbox import FEW, GATHERED_MAX, PROMPT_MAX, WRITE_NS, Outbox


class Loop:
    def __init__(self) -> None:
        self.ready: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.ready.append(callback)

    def tick(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Line:
    """A connection that counts its writes."""

    def __init__(self, outbox: Any) -> None:
        self._outbox = outbox
        self.out: list[bytes] = []
        self.writes: list[bytes] = []

    def send(self, data: bytes) -> None:
        if not self.out:
            self._outbox.mark(self)
        self.out.append(data)

    def write_out(self) -> None:
        self.writes.append(b"".join(self.out))
        self.out.clear()


class Committer:
    """Says when it is safe only when told."""

    full = False

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.collectors: list[Callable[[], object]] = []
        self.scheduled = False

    def when_safe(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def wrote(self) -> None: ...

    def commit(self) -> None: ...

    def safe(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def _outbox(committer: Any = None, *late: bytes) -> tuple[Any, Loop, Any]:
    loop: Any = Loop()

    def send_late() -> None:
        for data in late:
            line.send(data)

    turns = Turns(loop, iter(range(0, 1 << 40, WRITE_NS)).__next__)  # each look at the clock is another turn
    outbox = Outbox(loop, MemoryStore(), committer, before_write=send_late, turns=turns)
    line = Line(outbox)
    return outbox, loop, line


def _arrive(outbox: Any, line: Any, *pieces: bytes) -> None:
    outbox.arriving = True
    for piece in pieces:
        line.send(piece)
    outbox.arrived()


def test_all_bytes_of_a_tick_leave_in_one_write() -> None:
    outbox, loop, line = _outbox()
    for number in range(5):
        _arrive(outbox, line, b"%d" % number)
    assert line.writes == []
    loop.tick()
    assert line.writes == [b"01234"]


def test_lone_arrivals_are_soon_answered_at_once() -> None:
    outbox, loop, line = _outbox()
    at_once = 0
    for number in range(200):
        _arrive(outbox, line, b"x")
        at_once += len(line.writes) == number + 1
        loop.tick()
        assert len(line.writes) == number + 1
    assert at_once > 180


def test_a_crowd_is_gathered_again_after_few_single_answers() -> None:
    outbox, loop, line = _outbox()
    for _ in range(200):
        _arrive(outbox, line, b"x")
        loop.tick()
    line.writes.clear()
    for _ in range(20):
        for _ in range(50):
            _arrive(outbox, line, b"y")
        loop.tick()
    assert len(line.writes) <= PROMPT_MAX + 25
    assert b"".join(line.writes) == b"y" * 1_000


def test_held_bytes_wait_until_they_are_safe_and_keep_their_order() -> None:
    committer = Committer()
    outbox, loop, line = _outbox(committer)
    outbox.hold(line, b"1")
    outbox.hold(line, b"2")
    line.send(b"free")
    loop.tick()
    assert line.writes == [b"free"]
    outbox.hold(line, b"3")
    loop.tick()
    committer.safe()
    assert line.writes == [b"free", b"12", b"3"]


def test_what_is_held_after_a_write_began_waits_for_the_next() -> None:
    committer = Committer()
    outbox, loop, line = _outbox(committer)
    outbox.hold(line, b"1")
    committer.collectors[0]()
    written, committer.waiting = committer.waiting, []
    outbox.hold(line, b"2")
    loop.tick()
    for callback in written:
        callback()
    assert line.writes == [b"1"]
    committer.safe()
    assert line.writes == [b"1", b"2"]


def test_without_a_store_nothing_is_held() -> None:
    outbox, loop, line = _outbox()
    outbox.hold(line, b"1")
    loop.tick()
    assert line.writes == [b"1"]
    assert not outbox.durable
    assert not outbox.full


def test_what_gathers_elsewhere_is_written_before() -> None:
    _, loop, line = _outbox(None, b"late")
    line.send(b"early ")
    loop.tick()
    assert line.writes == [b"early late"]


def test_what_is_written_to_many_takes_several_turns() -> None:
    outbox, loop, _ = _outbox()
    lines = [Line(outbox) for _ in range(3 * FEW)]
    for line in lines:
        line.send(b"x")
    loop.tick()
    assert sum(len(line.writes) for line in lines) == FEW
    assert outbox.behind
    late = Line(outbox)
    late.send(b"y")
    lines[-1].send(b"z")
    loop.tick()
    assert late.writes == [b"y"]
    for _ in range(3):
        loop.tick()
    assert not outbox.behind
    assert [line.writes for line in lines] == [[b"x"]] * (3 * FEW - 1) + [[b"xz"]]


def test_at_the_end_all_is_written_at_once() -> None:
    outbox, loop, _ = _outbox()
    lines = [Line(outbox) for _ in range(3 * FEW)]
    for line in lines:
        line.send(b"x")
    loop.tick()
    outbox.write_all()
    assert [line.writes for line in lines] == [[b"x"]] * (3 * FEW)


def test_much_that_gathers_is_written_before_the_end_of_the_tick() -> None:
    outbox, _, line = _outbox()
    line.send(b"x")
    outbox.gather(GATHERED_MAX)
    assert line.writes == []
    outbox.gather(1)
    assert line.writes == [b"x"]
