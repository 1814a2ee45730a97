"""The link between two brokers keeps order and loses nothing, whatever the wire does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.routing.own_strategies import Letter

from geomq.routing.core.messages import ForwardEvent, Message, PutLocation, SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.core.plan import NOTHING, Batched, EventBatch
from geomq.routing.core.sizes import event_bytes
from geomq.routing.federation.edition_messages import wrapped
from geomq.routing.wire.carried import topic_of
from geomq.routing.wire.link import (
    MESSAGE_BYTES,
    RUN_BYTES_MAX,
    Ack,
    Data,
    Frame,
    Hello,
    Link,
    LinkOutput,
    Run,
    WhenFull,
    runs,
)


def event(number: int) -> ForwardEvent:
    return ForwardEvent(Event(EventId(BrokerId("a"), 0, number), "t", ClientId("c"), None, None, qos=1))


class Wire:
    """Two ends and the frames between them, under a seeded disturbance. With `together`, what is sent goes when the
    wire is looked at next, in few frames."""

    def __init__(self, seed: int, *, loss: float, repeat: float, shuffle: float, together: bool = False) -> None:
        self.random = random.Random(seed)
        self.together = together
        self.loss, self.repeat, self.shuffle = loss, repeat, shuffle
        self.ends = {"a": Link(epoch=0), "b": Link(epoch=0)}
        self.under_way: dict[str, list[Frame]] = {"a": [], "b": []}
        self.received: dict[str, list[Message]] = {"a": [], "b": []}
        self.ups = {"a": 0, "b": 0}
        self.now = 0.0

    def take(self, end: str, output: LinkOutput) -> None:
        self.received[end] += output.messages
        self.ups[end] += output.came_up
        other = "b" if end == "a" else "a"
        frames = list(output.frames)
        if self.together:
            data = [frame for frame in frames if isinstance(frame, Data)]
            frames = [*(frame for frame in frames if not isinstance(frame, Data)), *runs(data)]
        for frame in frames:
            if self.random.random() >= self.loss:
                copies = 2 if self.random.random() < self.repeat else 1
                self.under_way[other] += [frame] * copies

    def connect(self) -> None:
        for end, link in self.ends.items():
            self.take(end, link.connected(now=self.now))

    def cut(self) -> None:
        for end, link in self.ends.items():
            link.disconnected()
            self.under_way[end].clear()

    def restart(self, end: str) -> None:
        self.cut()
        self.ends[end] = Link(epoch=self.random.getrandbits(48), unsent=self.ends[end].durable())
        self.connect()

    def send(self, end: str, message: Message) -> None:
        link = self.ends[end]
        self.take(end, link.take(message) if self.together else link.send(message, now=self.now))

    def settle(self, rounds: int = 400) -> None:
        for _ in range(rounds):
            for end, link in self.ends.items():
                self.take(end, LinkOutput(link.pump(now=self.now), ()))
                frames, self.under_way[end] = self.under_way[end], []
                if self.random.random() < self.shuffle:
                    self.random.shuffle(frames)
                for frame in frames:
                    self.take(end, link.receive(frame, now=self.now))
            self.now += 100
            for end, link in self.ends.items():
                self.take(end, link.on_deadline(now=self.now))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    repeat=st.sampled_from([0.0, 0.3]),
    shuffle=st.sampled_from([0.0, 0.5]),
    cuts=st.lists(st.integers(0, 29), max_size=4),
    together=st.booleans(),
    looks=st.sets(st.integers(0, 29)),
)
def test_everything_arrives_once_and_in_order_over_a_bad_wire(
    seed: int, loss: float, repeat: float, shuffle: float, cuts: list[int], together: bool, looks: set[int]
) -> None:
    wire = Wire(seed, loss=loss, repeat=repeat, shuffle=shuffle, together=together)
    wire.connect()
    for number in range(30):
        wire.send("a", event(number))
        wire.send("b", event(number))
        if number in cuts:
            wire.cut()
        if number - 1 in cuts:
            wire.connect()
        if number in looks:
            wire.settle(1)
    if wire.ends["a"].state == "down":
        wire.connect()
    wire.settle()
    assert wire.received["b"] == [event(number) for number in range(30)]
    assert wire.received["a"] == [event(number) for number in range(30)]


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), restarts=st.lists(st.tuples(st.integers(0, 29), st.sampled_from("ab")), max_size=4))
def test_a_restart_loses_nothing_and_repeats_only_what_was_not_acknowledged(
    seed: int, restarts: list[tuple[int, str]]
) -> None:
    wire = Wire(seed, loss=0.2, repeat=0.1, shuffle=0.3)
    wire.connect()
    for number in range(30):
        wire.send("a", event(number))
        wire.settle(1)
        for at, end in restarts:
            if at == number:
                wire.restart(end)
    wire.settle()
    assert list(dict.fromkeys(m.event.id.sequence for m in wire.received["b"])) == list(range(30))  # type: ignore[attr-defined]


def test_while_down_only_promised_events_wait() -> None:
    wire = Wire(1, loss=0, repeat=0, shuffle=0)
    wire.send("a", ForwardEvent(Event(EventId(BrokerId("a"), 0, 7), "t", ClientId("c"), None, None)))
    wire.send("a", PutLocation(ClientId("c"), None))
    wire.send("a", event(1))
    wire.send("a", SyncBegin())
    wire.connect()
    wire.settle(5)
    assert wire.received["b"] == [event(1)]
    assert wire.ups == {"a": 1, "b": 1}


@pytest.mark.parametrize("edition", [None, Edition(3, "b")])
def test_of_a_batch_that_was_lost_on_the_way_only_the_number_is_sent_again(edition: Edition | None) -> None:
    wire = Wire(1, loss=0, repeat=0, shuffle=0)
    wire.connect()
    wire.settle(3)
    batch = wrapped(EventBatch(0, 5, (Batched(ClientId("c"), None, 1, 1, False, None, 6),), (b"packet",)), edition)
    wire.send("a", batch)
    wire.send("a", event(1))
    assert [frame.message for frame in wire.under_way["b"] if isinstance(frame, Data)] == [batch, event(1)]
    wire.cut()
    wire.connect()
    wire.settle(5)
    assert wire.received["b"] == [EventBatch(0, 0, (), ()), event(1)]


@pytest.mark.parametrize(("epoch", "again"), [(0, [0, 1]), (1, [1])])
def test_an_event_of_qos_0_is_not_sent_again_to_a_peer_that_restarted(epoch: int, again: list[int]) -> None:
    wire = Wire(1, loss=0, repeat=0, shuffle=0)
    wire.connect()
    wire.settle(3)
    plain = ForwardEvent(Event(EventId(BrokerId("a"), 0, 0), "t", ClientId("c"), None, None))
    wire.send("a", plain)
    wire.send("a", event(1))
    wire.cut()
    if epoch:
        wire.ends["b"] = Link(epoch=epoch)
    wire.connect()
    wire.settle(5)
    events = [message for message in wire.received["b"] if isinstance(message, ForwardEvent)]
    assert [message.event.id.sequence for message in events] == again


def test_a_full_outbox_drops_the_oldest_and_the_rest_still_arrives() -> None:
    link, peer = Link(epoch=0, outbox_max=3), Link(epoch=0)
    for number in range(5):
        link.send(event(number), now=0)
    assert link.dropped == 2
    hello = link.connected(now=0).frames[0]
    peer.connected(now=0)
    answer = peer.receive(hello, now=0)
    output = link.receive(answer.frames[0], now=0)
    got = [m for frame in output.frames for m in peer.receive(frame, now=0).messages]
    assert got == [event(2), event(3), event(4)]


def joined(link: Link, peer: Link) -> None:
    hello = link.connected(now=0).frames[0]
    peer.connected(now=0)
    link.receive(peer.receive(hello, now=0).frames[0], now=0)


def talk(link: Link, peer: Link, frames: list[Frame]) -> list[Message]:
    """Carry frames to the peer, and its answers back, until nobody has anything left to say."""
    heard: list[Message] = []
    while frames:
        answers = [peer.receive(frame, now=0) for frame in frames]
        heard += [message for output in answers for message in output.messages]
        frames = [f for output in answers for frame in output.frames for f in link.receive(frame, now=0).frames]
    return heard


def place(number: int) -> PutLocation:
    return PutLocation(ClientId(f"c{number}"), None)


def test_what_a_strategy_repeats_arrives_whole_however_much_it_is() -> None:
    link, peer = Link(epoch=0, outbox_max=5, window=2), Link(epoch=0)
    joined(link, peer)
    said: list[Message] = [SyncBegin(), *map(place, range(40))]
    frames = [frame for message in said for frame in link.send(message, now=0).frames]
    assert talk(link, peer, frames) == said
    assert not link.dropped


def test_the_oldest_events_give_way_behind_what_must_not_be_left_out() -> None:
    link, peer = Link(epoch=0, outbox_max=2, window=2), Link(epoch=0)
    joined(link, peer)
    outputs = [link.send(m, now=0) for m in (*map(place, range(3)), *map(event, range(4)), place(3))]
    assert [lost for output in outputs for lost in output.lost] == [event(0), event(1)]
    heard = talk(link, peer, [frame for output in outputs for frame in output.frames])
    assert [m for m in heard if m != NOTHING] == [*map(place, range(3)), event(2), event(3), place(3)]


def test_a_peer_that_takes_in_nothing_is_left_and_told_everything_anew() -> None:
    link, peer = Link(epoch=0, backlog_max=5, window=2), Link(epoch=0)
    joined(link, peer)
    for message in (event(0), *map(place, range(4))):
        assert not link.send(message, now=0).overrun
    assert link.send(place(4), now=0).overrun
    link.disconnected()
    peer.disconnected()
    peer.connected(now=0)
    answer = peer.receive(link.connected(now=0).frames[0], now=0)
    heard = talk(link, peer, [f for frame in answer.frames for f in link.receive(frame, now=0).frames])
    assert [message for message in heard if message != NOTHING] == [event(0)]


def test_what_waits_is_bounded_in_bytes_too() -> None:
    link = Link(epoch=0, outbox_bytes_max=1_000)
    heavy = [ForwardEvent(replace(event(number).event, payload=bytes(400))) for number in range(6)]
    outputs = [link.send(message, now=0) for message in heavy]
    assert [lost for output in outputs for lost in output.lost] == heavy[:3]
    assert [number for output in outputs for number in output.lost_numbers] == [0, 1, 2]
    assert link.durable() == heavy[3:]


def test_a_full_outbox_does_not_grow_while_the_link_is_down() -> None:
    link, peer = Link(epoch=0, outbox_max=3), Link(epoch=0)
    joined(link, peer)
    link.send(place(0), now=0)
    link.disconnected()
    for number in range(100):
        link.send(event(number), now=0)
    assert link.durable() == [event(97), event(98), event(99)]
    assert link.latest - link.acknowledged < 6


def test_even_what_must_not_be_lost_waits_in_bounds() -> None:
    link = Link(epoch=0, outbox_max=2, backlog_max=5)
    letters = [Letter(str(number)) for number in range(8)]
    lost = [each for letter in letters for each in link.take(letter).lost]
    assert (link.durable(), lost) == (letters[:5], letters[5:])


@pytest.mark.parametrize("frame", [Ack(0, 99), Ack(7, 0), Data(5, 0, event(0)), Hello(0, 10**9, 3, -5, False), Frame()])
def test_senseless_frames_are_survived(frame: Frame) -> None:
    wire = Wire(1, loss=0, repeat=0, shuffle=0)
    wire.connect()
    wire.settle(3)
    wire.ends["a"].receive(frame, now=0)
    wire.send("a", event(1))
    wire.settle(20)
    assert wire.received["b"] == [event(1)]


def test_messages_that_follow_each_other_share_a_frame() -> None:
    batch = EventBatch(0, 5, (), ())
    said = [event(0), event(1), SyncBegin(), SyncBegin(), batch, wrapped(batch, Edition(1, "a")), event(6), event(7)]
    frames = [Data(3, number, message) for number, message in enumerate(said)]
    first, second, last = (Run(3, start, tuple(said[start : start + 2])) for start in (0, 2, 6))
    assert runs(frames) == [first, second, *frames[4:6], last]
    assert runs([frames[0], frames[6]]) == [frames[0], frames[6]]
    assert runs([]) == []


def test_a_frame_of_several_messages_is_not_too_long() -> None:
    long = replace(event(0), event=replace(event(0).event, payload=bytes(RUN_BYTES_MAX // 3)))
    found = runs([Data(0, number, long) for number in range(7)])
    assert [len(frame.messages) if isinstance(frame, Run) else 1 for frame in found] == [3, 3, 1]


def test_of_a_run_only_what_is_new_is_taken_in() -> None:
    link = Link(epoch=0)
    link.connected(now=0.0)
    link.receive(Hello(5, 10, None, 0, False), now=0.0)
    assert link.receive(Run(5, 10, (event(0), event(1))), now=0.0) == LinkOutput([Ack(5, 12)], (event(0), event(1)))
    assert link.receive(Run(5, 11, (event(1), event(2))), now=0.0) == LinkOutput([Ack(5, 13)], (event(2),))
    assert link.receive(Run(5, 10, (event(0), event(1))), now=0.0) == LinkOutput([Ack(5, 13)], ())
    assert link.receive(Run(5, 14, (event(4), event(5))), now=0.0) == LinkOutput([Ack(5, 13)], ())
    assert link.receive(Run(4, 13, (event(3),)), now=0.0) == LinkOutput([], [])
    assert link.receive(Run(5, -(10**9), (event(3),)), now=0.0) == LinkOutput([Ack(5, 13)], ())


def test_what_was_taken_goes_when_it_is_pumped() -> None:
    wire = Wire(1, loss=0, repeat=0, shuffle=0, together=True)
    wire.connect()
    wire.settle(3)
    for number in range(3):
        wire.send("a", event(number))
    assert wire.under_way["b"] == []
    wire.settle(1)
    assert wire.received["b"] == [event(0), event(1), event(2)]


def test_a_link_is_clear_when_the_peer_is_there_and_all_it_was_sent_is_on_the_wire() -> None:
    link = Link(epoch=1, window=2)
    assert not link.is_clear
    link.connected(now=0.0)
    assert not link.is_clear
    link.receive(Hello(2, 0, None, 0, False), now=0.0)
    assert link.is_clear
    link.take(event(0))
    assert not link.is_clear
    link.pump(now=0.0)
    link.send(event(1), now=0.0)
    assert link.is_clear
    link.send(event(2), now=0.0)
    assert not link.is_clear
    link.receive(Ack(1, 1), now=0.0)
    assert link.is_clear
    link.disconnected()
    assert not link.is_clear


def test_what_waits_for_a_peer_is_counted_whatever_becomes_of_it() -> None:
    link, peer = Link(epoch=0, outbox_max=3, window=2), Link(epoch=0)
    assert (link.waiting, link.waiting_bytes) == (0, 0)
    for number in range(5):
        link.take(event(number))
    assert link.waiting == 3
    assert link.waiting_bytes == 3 * (MESSAGE_BYTES + event_bytes(event(0).event))
    joined(link, peer)
    heard = talk(link, peer, [*link.send(place(1), now=0).frames, *link.on_deadline(now=1e6).frames])
    assert len(heard) == 4
    assert (link.waiting, link.waiting_bytes) == (0, 0)


def test_a_link_that_is_cut_short_counts_what_it_keeps() -> None:
    link, peer = Link(epoch=0, backlog_max=3), Link(epoch=0)
    joined(link, peer)
    for message in (place(1), event(1), place(2)):
        link.take(message)
    assert link.take(event(2)).overrun
    kept = [event(1), event(2)]
    assert link.waiting_bytes - MESSAGE_BYTES * link.waiting == sum(event_bytes(each.event) for each in kept)


@pytest.mark.parametrize(
    ("then", "kept", "lost"), [("slow", 6, 0), ("drop_newest", 3, 3), ("drop_oldest", 3, 3), ("disconnect", 3, 3)]
)
def test_the_driver_decides_what_becomes_of_an_event_without_room(then: WhenFull, kept: int, lost: int) -> None:
    asked: list[Message] = []

    def on_full(_: Link, message: Message, size: int) -> WhenFull:
        assert size == event_bytes(event(0).event)
        asked.append(message)
        return then

    link, peer = Link(epoch=0, outbox_max=3, on_full=on_full), Link(epoch=0)
    outputs = [link.take(event(number)) for number in range(6)]
    assert asked == [event(3), event(4), event(5)]
    assert sum(len(output.lost) for output in outputs) == lost
    assert (link.waiting, link.fits(0, 0), link.overfull) == (kept, False, kept == 6)
    assert link.fits(kept - 2, 0)
    joined(link, peer)
    heard = talk(link, peer, list(link.on_deadline(now=1e6).frames))
    first = 3 if then == "drop_oldest" else 0
    assert heard == [event(number) for number in range(first, first + kept)]
    assert link.fits(0, 0)


def test_only_what_may_go_is_given_up_for_a_newer_event() -> None:
    odd = {number for number in range(20) if number % 2}

    def may_go(message: Message) -> bool:
        return isinstance(message, ForwardEvent) and message.event.id.sequence in odd

    link, peer = Link(epoch=0, outbox_max=3, on_full=lambda *_: "drop_oldest", may_go=may_go), Link(epoch=0)
    outputs = [link.take(event(number)) for number in (0, 1, 2, 4, 6, 8)]
    assert [output.lost for output in outputs] == [(), (), (), (event(1),), (event(6),), (event(8),)]
    assert [output.lost_numbers for output in outputs] == [(), (), (), (1,), (), ()]
    joined(link, peer)
    heard = talk(link, peer, list(link.on_deadline(now=1e6).frames))
    assert [message for message in heard if isinstance(message, ForwardEvent)] == [event(0), event(2), event(4)]


def test_the_room_there_is_counts_events_and_bytes() -> None:
    size = event_bytes(event(0).event)
    link = Link(epoch=0, outbox_max=3, outbox_bytes_max=3 * size)
    assert link.room(0) == 3
    link.take(event(0))
    assert link.room(size) == 2
    assert link.room(2 * size) == 0
    link.take(event(1))
    link.take(event(2))
    assert link.room(0) == 0


def test_the_topic_of_an_event_is_found_in_every_edition() -> None:
    assert topic_of(event(0)) == topic_of(wrapped(event(0), Edition(1, "a"))) == event(0).event.topic
    assert topic_of(place(0)) is None
    assert topic_of(NOTHING) is None


def test_what_waits_for_a_peer_that_left_waits_no_more() -> None:
    link = Link(epoch=0, outbox_max=1, outbox_bytes_max=1)
    link.take(event(1))
    assert not link.fits(0, 0)
    link.clear()
    assert link.fits(0, 0)
    assert (link.waiting, link.waiting_bytes) == (0, 0)
