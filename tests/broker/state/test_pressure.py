"""Answers wait until what they answer has its place; their order and who waits for what, against a simple account."""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.config.queues import Queues, TopicRule
from geomq.broker.config.settings import Config, Limits
from geomq.broker.security.acl import ALL_RIGHTS
from geomq.broker.state.client import Client
from geomq.broker.state.counts import Counts
from geomq.broker.state.pressure import IDLE_LOOK_S, LOOK_S, NO_ROOM, Pressure
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Puback, Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.handshake import Policy
from geomq.mqtt.session.session import Session

ROOM = 3


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], object], list[bool]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.call_at(self.now, callback)

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        cancelled: list[bool] = []
        self.due.append((when, callback, cancelled))

        class Handle:
            def when(self) -> float:
                return when

            def cancel(self) -> None:
                cancelled.append(True)

        return Handle()  # type: ignore[return-value]

    def pass_(self, seconds: float) -> None:
        until = self.now + seconds
        while any(when <= until and not cancelled for when, _, cancelled in self.due):
            self.due.sort(key=lambda each: each[0])
            when, callback, cancelled = self.due.pop(0)
            if not cancelled:
                self.now = max(self.now, when)
                callback()
        self.now = until


class Outbox:
    def __init__(self) -> None:
        self.sent: list[tuple[Any, bytes]] = []

    def hold(self, connection: Any, data: bytes) -> None:
        self.sent.append((connection, data))


class Connection:
    def __init__(self, version: int) -> None:
        self.version = version
        self.closed = False
        self.reads = True
        self.dismissed: list[ReasonCode] = []

    def stop_reading(self) -> None:
        self.reads = False

    def go_on(self) -> None:
        self.reads = True

    def dismiss(self, reason: ReasonCode, _text: str) -> None:
        self.dismissed.append(reason)


class Line:
    """A queue that holds numbers."""

    def __init__(self) -> None:
        self.length = 0

    def fits(self, messages: int, size: int) -> bool:
        assert size == 10 * messages
        return self.length - messages < ROOM

    @property
    def overfull(self) -> bool:
        return self.length >= 2 * ROOM


class Stage:
    def __init__(self, queues: Queues = Queues(slow_s_max=0), topics: tuple[TopicRule, ...] = ()) -> None:  # noqa: B008
        self.clock, self.outbox, self.counts = Clock(), Outbox(), Counts()
        self.clients: dict[str, Client] = {}
        config = Config(queues=queues, topics=topics, limits=Limits(receive_maximum=2))
        self.pressure = Pressure(config, self.clients, self.counts, self.outbox, self.clock)  # type: ignore[arg-type]
        self.lines = [Line(), Line()]

    def client(self, name: str, version: int = V5) -> Client:
        session = Session(name, Policy(receive_max=100))
        session.version = version
        made = self.clients[name] = Client(session, None, ALL_RIGHTS)
        made.connection = Connection(version)  # type: ignore[assignment]
        return made

    def publish(self, client: Client, packet_id: int, *lines: int) -> list[bool]:
        """An event that goes to these lines; which took it."""
        client.session.accept(Publish("t", b"", 1, packet_id=packet_id), 0.0)
        self.pressure.begin()
        taken = []
        for number in lines:
            line = self.lines[number]
            room = line.length < ROOM
            taken.append(room or self.pressure.of_link(f"b{number}", line, "t", 10, promised=True) == "slow")
            line.length += taken[-1]
        self.pressure.answer(client, packet_id, 1, ReasonCode.SUCCESS, None)
        return taken

    def answers(self, client: Client) -> list[int]:
        """The identifiers answered to on the client's connection, in order."""
        return [int.from_bytes(data[2:4]) for connection, data in self.outbox.sent if connection is client.connection]


def test_an_event_beyond_the_end_is_answered_when_it_is_within() -> None:
    stage = Stage()
    p = stage.client("p")
    for packet_id in range(1, 6):
        assert stage.publish(p, packet_id, 0) == [True]
    assert stage.answers(p) == [1, 2, 3]
    stage.clock.pass_(60)
    assert stage.answers(p) == [1, 2, 3]
    stage.lines[0].length -= 1
    stage.clock.pass_(LOOK_S)
    assert stage.answers(p) == [1, 2, 3, 4]
    stage.lines[0].length = 0
    stage.clock.pass_(LOOK_S)
    assert stage.answers(p) == [1, 2, 3, 4, 5]
    stage.clock.pass_(IDLE_LOOK_S)
    assert not stage.pressure.active
    assert not stage.clock.due


@settings(max_examples=150)
@given(st.data())
def test_whoever_waits_waits_for_a_full_queue_and_answers_keep_their_order(data: st.DataObject) -> None:
    stage = Stage()
    publishers = [stage.client(name) for name in "pqr"]
    given_to: dict[str, list[int]] = {client.id: [] for client in publishers}
    beyond: list[list[tuple[str, int]]] = [[], []]
    """The events in each line that have no place in it yet."""
    for _ in range(data.draw(st.integers(1, 40))):
        if data.draw(st.booleans()):
            client = data.draw(st.sampled_from(publishers))
            lines = data.draw(st.sampled_from([(), (0,), (1,), (0, 1)]))
            packet_id = len(given_to[client.id]) + 1
            given_to[client.id].append(packet_id)
            taken = stage.publish(client, packet_id, *lines)
            for number, was_taken in zip(lines, taken, strict=True):
                if was_taken and stage.lines[number].length > ROOM and all(taken):
                    beyond[number].append((client.id, packet_id))
        else:
            number = data.draw(st.integers(0, 1))
            line = stage.lines[number]
            line.length = max(0, line.length - data.draw(st.integers(1, 3)))
        stage.clock.pass_(LOOK_S)
        for number, line in enumerate(stage.lines):
            while beyond[number] and line.length - len(beyond[number]) < ROOM:
                beyond[number].pop(0)
        waits = {each for events in beyond for each in events}
        for client in publishers:
            packet_ids = given_to[client.id]
            first = next((n for n, packet_id in enumerate(packet_ids) if (client.id, packet_id) in waits), None)
            assert stage.answers(client) == packet_ids[:first]


def test_what_is_not_taken_is_said_in_the_words_of_the_version() -> None:
    stage = Stage()
    p, new, old = stage.client("p"), stage.client("new"), stage.client("old", V311)
    for packet_id in range(1, 2 * ROOM + 1):
        stage.publish(p, packet_id, 0)
    assert stage.publish(new, 1, 0) == [False]
    ((_, data),) = [sent for sent in stage.outbox.sent if sent[0] is new.connection]
    assert data == encode(Puback(1, ReasonCode.QUOTA_EXCEEDED, Properties(reason_string=NO_ROOM)), V5)
    stage.publish(old, 1, 0)
    connection: Any = old.connection
    assert connection.dismissed == [ReasonCode.QUOTA_EXCEEDED]
    assert stage.answers(old) == []
    assert stage.counts.events_refused == 2


def test_what_peers_send_on_makes_no_client_wait_and_refuses_it_nothing() -> None:
    stage = Stage()
    p = stage.client("p")
    line = stage.lines[0]
    line.length = ROOM
    assert stage.pressure.of_link("b", line, "t", 10, promised=True) == "slow"
    line.length = 2 * ROOM
    assert stage.pressure.of_link("b", line, "t", 10, promised=True) == "drop_newest"
    stage.pressure.answer(p, 1, 1, ReasonCode.SUCCESS, None)
    assert stage.answers(p) == [1], "it was a repeated one, which was routed long ago"
    assert stage.counts.events_refused == 0
    stage.publish(p, 2, 1)
    assert stage.answers(p) == [1, 2]


def test_what_was_answered_elsewhere_makes_nobody_wait() -> None:
    stage = Stage()
    p = stage.client("p")
    stage.lines[0].length = ROOM
    stage.pressure.begin()
    stage.pressure.end()
    assert stage.pressure.of_link("b", stage.lines[0], "t", 10, promised=True) == "slow"
    stage.pressure.answer(p, 1, 1, ReasonCode.SUCCESS, None)
    assert stage.answers(p) == [1]


def test_a_client_that_does_not_keep_to_its_receive_maximum_is_read_no_further() -> None:
    stage = Stage()
    p = stage.client("p")
    connection: Any = p.connection
    stage.lines[0].length = ROOM
    stage.publish(p, 1, 0)
    stage.publish(p, 1, 1)
    assert connection.reads, "as many as it may"
    stage.publish(p, 1, 1)
    assert not connection.reads, "it uses the same identifier again and again"
    stage.lines[0].length = ROOM - 1
    stage.clock.pass_(LOOK_S)
    assert connection.reads
    assert stage.answers(p) == [1, 1, 1]


def test_nothing_is_kept_for_connections_a_publisher_no_longer_has() -> None:
    stage = Stage()
    p = stage.client("p")
    stage.lines[0].length = ROOM
    for _ in range(2):
        stage.publish(p, 1, 0)
        stage.publish(p, 2, 1)
        p.connection = Connection(V5)  # type: ignore[assignment]
    stage.publish(p, 3, 1)
    assert stage.answers(p) == [3], "what waits is for others"
    stage.publish(p, 4, 0)
    stage.lines[0].length = ROOM + 1
    stage.clock.pass_(LOOK_S)
    assert stage.answers(p) == [3]
    stage.lines[0].length = ROOM
    stage.clock.pass_(LOOK_S)
    assert stage.answers(p) == [3, 4]
    assert stage.pressure.waiting == 0


def test_many_full_queues_are_looked_at_less_often() -> None:
    stage = Stage()
    p = stage.client("p")
    for number in range(10_000):
        line = Line()
        line.length = ROOM
        stage.pressure.of_link(str(number), line, "t", 10, promised=True)
    stage.lines[0].length = ROOM
    stage.publish(p, 1, 0)
    stage.lines[0].length = 0
    stage.clock.pass_(5 * LOOK_S)
    assert stage.answers(p) == []
    stage.clock.pass_(6 * LOOK_S)
    assert stage.answers(p) == [1]


def test_a_client_of_the_older_version_is_read_again_when_it_has_answers() -> None:
    stage = Stage()
    old = stage.client("old", V311)
    connection: Any = old.connection
    for packet_id in range(1, ROOM + 2):
        stage.publish(old, packet_id, 0)
    assert connection.reads
    stage.publish(old, ROOM + 2, 0)
    assert not connection.reads
    stage.lines[0].length -= 1
    stage.clock.pass_(LOOK_S)
    assert connection.reads


def test_a_queue_that_kept_somebody_waiting_for_too_long_slows_nobody_until_it_has_room() -> None:
    stage = Stage(Queues(slow_s_max=5))
    p = stage.client("p")
    for packet_id in range(1, ROOM + 2):
        stage.publish(p, packet_id, 0)
    stage.clock.pass_(4.9)
    assert stage.answers(p) == [1, 2, 3]
    stage.clock.pass_(0.2)
    assert stage.answers(p) == [1, 2, 3, 4]
    assert not stage.pressure.active
    assert stage.publish(p, 5, 0) == [False]
    assert stage.answers(p)[-1] == 5
    stage.lines[0].length = ROOM - 1
    stage.clock.pass_(IDLE_LOOK_S)
    assert stage.pressure.full == 0
    assert stage.publish(p, 6, 0) == [True]
    assert stage.publish(p, 7, 0) == [True]
    assert stage.answers(p)[-1] == 6


def test_a_link_takes_what_its_settings_and_the_topic_say() -> None:
    rules = (TopicRule(topic_filter="news/#", queue_full="drop_newest"),)
    stage = Stage(Queues(full_for_peers="drop_oldest"), rules)
    line = stage.lines[0]
    assert stage.pressure.of_link("b", line, "t", 10, promised=True) == "drop_oldest"
    assert stage.pressure.of_link("b", line, "news/a", 10, promised=True) == "drop_newest"
    stage.pressure.take_config(Config())
    assert stage.pressure.of_link("b", line, "t", 10, promised=True) == "slow"
    assert stage.pressure.of_link("b", line, "t", 10, promised=False) == "drop_newest"


def test_only_events_whose_own_policy_it_is_are_given_up_for_newer_ones() -> None:
    rules = (
        TopicRule(topic_filter="alarm/#", queue_full="slow"),
        TopicRule(topic_filter="state/#", queue_full="drop_oldest"),
    )
    stage = Stage(topics=rules)
    assert stage.pressure.may_go("state/a", promised=True)
    assert not stage.pressure.may_go("alarm/a", promised=True)
    assert not stage.pressure.may_go("t", promised=True), "what is slowed down for peers"
    assert not stage.pressure.may_go(None, promised=True), "some of it may be an alarm"
    assert stage.pressure.may_go("t", promised=False)
    assert stage.pressure.may_go(None, promised=False)
    stage.pressure.take_config(Config(queues=Queues(full_for_peers="drop_oldest")))
    assert stage.pressure.may_go(None, promised=True)
