"""Retained events kept in step: versions, digests, slices, deletions, forgetting and expiry, without any broker."""

from dataclasses import dataclass, field

import pytest
from tests.routing.stage import row_of_squares

from geomq.routing.core.actions import (
    Action,
    DeliverToClients,
    ForgetNote,
    KeepNote,
    RefuseRetained,
    SendRetained,
    SendToPeer,
    StoreRetained,
)
from geomq.routing.core.events import (
    ClientSubscribed,
    PeerDown,
    PeerSaid,
    PeerUp,
    RetainedChanged,
    RetainedExpired,
    RetainedStored,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Version
from geomq.routing.node import Node
from geomq.routing.retained.sync import NOTE
from geomq.routing.retained.versions import PutRetained, RetainedDigest, RetainedVersions, RetainedWanted
from geomq.sim.engine import Simulation

B1, B2, B3 = (BrokerId(f"b{n}") for n in (1, 2, 3))


@dataclass
class Alone:
    """One broker of three; the test is its driver."""

    now: float = 0.0
    node: Node = field(init=False)
    notes: dict[bytes, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = Simulation(row_of_squares(3), "flood_events").nodes[B1]
        assert isinstance(found, Node)
        self.node = found
        self.node.retained.load({}, ())
        for peer in (B2, B3):
            self.node.handle(PeerUp(peer), now=0)

    def feed(self, event: object) -> list[Action]:
        return self._noted(self.node.handle(event, now=self.now))  # type: ignore[arg-type]

    def _noted(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, KeepNote):
                assert action.kind == NOTE
                self.notes[action.key] = action.value
            elif isinstance(action, ForgetNote):
                del self.notes[action.key]
        return [action for action in actions if not isinstance(action, KeepNote | ForgetNote)]

    def wake(self) -> list[Action]:
        return self._noted(self.node.on_deadline(now=self.now))

    def hears(self, message: Message, peer: BrokerId = B2) -> list[Action]:
        return self.feed(PeerSaid(peer, message))

    def sets(self, topic: str, wall_ms: int = 1_000, *, deleted: bool = False) -> list[Action]:
        return self.feed(RetainedChanged(topic, wall_ms, deleted, EventId(B1, 0, 7)))


def put(topic: str, time_ms: int, payload: bytes = b"x", origin: BrokerId = B2) -> PutRetained:
    return PutRetained(
        Event(EventId(origin, 0, time_ms), topic, ClientId("p"), None, None, payload, retain=True), "ann"
    )


def test_a_change_made_here_is_sent_to_every_peer_with_the_id_it_was_published_under() -> None:
    broker = Alone()
    version = Version(1_000, B1)
    assert broker.sets("t") == [SendRetained(peer, "t", version, EventId(B1, 0, 7)) for peer in (B2, B3)]
    assert broker.node.retained.version("t") == version
    assert list(broker.notes) == [b"t"]


def test_a_later_change_is_stored_before_anybody_can_learn_its_version_from_here() -> None:
    broker = Alone()
    news = put("t", 5)
    assert broker.hears(news) == [StoreRetained(news.event, "ann", None)]
    assert broker.node.retained.version("t") is None, "the driver may have no room for it"
    broker.feed(RetainedStored(news.event, None))
    assert broker.node.retained.version("t") == Version(5, B2)
    assert broker.hears(news) == broker.hears(put("t", 4)) == [], "not later"
    assert broker.hears(put("$SYS/load", 9)) == []


def test_a_change_made_here_is_later_than_any_received_whatever_the_clocks_say() -> None:
    broker = Alone()
    broker.feed(RetainedStored(put("t", 9_000).event, None))
    broker.sets("t", wall_ms=10)
    assert broker.node.retained.version("t") == Version(9_001, B1)


def test_digests_are_compared_when_a_link_comes_up_and_everything_is_asked_for_only_if_they_differ() -> None:
    broker = Alone()
    broker.sets("t")
    (digest,) = (
        a.message.digest
        for a in broker.feed(PeerUp(B2))
        if isinstance(a, SendToPeer) and isinstance(a.message, RetainedDigest)
    )
    assert broker.hears(RetainedDigest(digest)) == []
    assert broker.hears(RetainedDigest(digest + 1)) == [SendToPeer(B2, RetainedWanted())]


def test_everything_is_sent_in_slices_and_begun_anew_when_it_is_asked_for_again() -> None:
    broker = Alone(now=50.0)
    broker.node.retained.slice = 2
    for number in range(5):
        broker.sets(f"t{number}")
    assert broker.hears(RetainedWanted()) == [], "others get their turn first"
    sent: list[list[str]] = []
    while (deadline := broker.node.retained.deadline) is not None:
        assert deadline <= broker.now
        if len(sent) == 1:
            broker.hears(RetainedWanted())
        sent.append([action.topic for action in broker.wake() if isinstance(action, SendRetained)])
    assert sent == [["t0", "t1"], ["t0", "t1"], ["t2", "t3"], ["t4"]]


def test_what_a_peer_asked_for_ends_with_its_link() -> None:
    broker = Alone()
    broker.sets("t")
    broker.hears(RetainedWanted())
    broker.feed(PeerDown(B2))
    assert broker.wake() == []
    assert broker.node.retained.deadline is None


def test_topics_of_which_nothing_is_retained_make_room_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetainedVersions.__init__, "__defaults__", (3,))
    broker = Alone()
    broker.sets("stays", 1)
    broker.sets("deleted", 2, deleted=True)
    broker.sets("expires", 3)
    broker.sets("more", 4)
    assert sorted(broker.notes) == [b"expires", b"more", b"stays"]
    assert broker.sets("too many", 5) == [RefuseRetained("too many", "too many topics")]
    broker.feed(RetainedExpired(("expires", "never known")))
    broker.sets("last", 6)
    assert sorted(broker.notes) == [b"last", b"more", b"stays"]


def test_after_a_restart_versions_and_what_is_deleted_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Alone()
    before.sets("stays", 1)
    before.sets("deleted", 2, deleted=True)
    after = Alone()
    after.notes |= before.notes
    after.node.retained.load(after.notes | {b"broken": b"\xff"}, ["stays", "from before there were peers"])
    retained = after.node.retained
    assert [retained.version(topic) for topic in ("stays", "deleted")] == [Version(1, B1), Version(2, B1)]
    assert retained.version("from before there were peers") == Version(0, B1)
    monkeypatch.setattr(retained._versions, "_topics_max", 3)
    after.sets("new", 3)
    assert retained.version("deleted") is None


def news(topic: str, sequence: int) -> RetainedStored:
    """A peer's retained event is kept here, and was published just now."""
    version = EventId(B2, 0, sequence)
    return RetainedStored(Event(version, topic, ClientId("p"), None, None, b"x", retain=True), EventId(B2, 5, sequence))


def delivered(actions: list[Action]) -> list[ClientId]:
    return [match.client for action in actions if isinstance(action, DeliverToClients) for match in action.matches]


def test_who_subscribed_just_now_gets_what_its_publishers_broker_could_not_know_it_wants() -> None:
    broker = Alone()
    broker.feed(ClientSubscribed(ClientId("c"), "t"))
    assert delivered(broker.feed(news("t", 1))) == ["c"]
    assert delivered(broker.feed(news("t", 1))) == []
    broker.now = 20_000.0
    assert delivered(broker.feed(news("t", 2))) == []
    broker.feed(ClientSubscribed(ClientId("c"), "t"))
    assert delivered(broker.feed(news("t", 3))) == []


def test_what_was_subscribed_before_a_restart_is_known_everywhere_and_not_served_before_older_events() -> None:
    node = Simulation(row_of_squares(3), "flood_events").nodes[B1]
    assert isinstance(node, Node)
    node.handle(ClientSubscribed(ClientId("c"), "t"), now=0)
    node.retained.load({}, ())
    assert delivered(node.handle(news("t", 1), now=0)) == []


def test_a_broker_that_can_have_no_peers_keeps_no_versions() -> None:
    node = Simulation(row_of_squares(1), "flood_events").nodes[B1]
    assert node.handle(RetainedChanged("t", 1), now=0) == []
