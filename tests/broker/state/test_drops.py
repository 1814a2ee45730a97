"""Drops are counted by reason and receiver, told to whoever comes back, and fill no log."""

import logging

import pytest

from geomq.broker.state.counts import Counts
from geomq.broker.state.drops import ADVICE, NAMES_MAX, PAUSE_S, Drop, Drops, Reason
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.session.changes import EventsMissed, Journal
from geomq.mqtt.session.handshake import Policy, agree
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.subscriptions import Terms


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.counts = Counts()
        self.drops = Drops(self.counts, now_s=lambda: self.now)

    def session(self, name: str, journal: Journal | None = None) -> Session:
        policy = Policy(in_flight_max=1, queue_max=2)
        session = Session(name, policy, journal, tally=self.counts, on_drop=self.drops.of_session)
        session.attach(agree(Connect(name), policy, spare_id=""), None, 0.0)
        return session

    def totals(self) -> dict[Drop, int]:
        return dict(self.drops.totals())


def overfill(session: Session, count: int) -> None:
    for _ in range(count):
        session.deliver(Fanout(ApplicationMessage("t", b"x", 1), 0.0), Terms(1, False, ()))


def test_a_full_queue_is_counted_by_the_kind_of_session() -> None:
    bench, journal = Bench(), Journal()
    overfill(bench.session("c"), 5)
    overfill(bench.session("k", journal), 7)
    assert bench.totals() == {Drop(Reason.QUEUE_FULL, "client"): 2, Drop(Reason.QUEUE_FULL, "session"): 4}
    assert bench.counts.events_dropped == 6
    assert [change for change in journal if isinstance(change, EventsMissed)][-1] == EventsMissed("k", 4)


def test_a_session_tells_once_how_many_it_missed() -> None:
    bench, journal = Bench(), Journal()
    session = bench.session("k", journal)
    overfill(session, 6)
    bench.drops.missed(session, Reason.SLOW_READER, 10)
    assert session.told_missed() == 13
    assert session.told_missed() == 0
    assert journal[-1] == EventsMissed("k", 0)


def test_what_waits_for_a_session_that_ends_is_counted() -> None:
    bench = Bench()
    session = bench.session("c")
    overfill(session, 3)
    bench.drops.ended(session)
    assert bench.totals() == {Drop(Reason.SESSION_ENDED, "client"): 3}


def test_one_line_in_a_while_says_how_many_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO, "geomq.broker"):
        for number in range(1_000):
            bench.drops.missed(bench.session(f"s{number}"), Reason.SLOW_READER)
            bench.drops.report()
        assert len(caplog.records) == 1
        bench.now = PAUSE_S
        bench.drops.report()
    first, second = caplog.records
    assert (first.events, second.events) == (1, 999)  # type: ignore[attr-defined]
    assert second.levelno == logging.WARNING
    assert second.advice == ADVICE[Reason.SLOW_READER, "client"]  # type: ignore[attr-defined]
    assert len(second.client.split()) == NAMES_MAX  # type: ignore[attr-defined]


def test_what_is_left_to_say_is_said_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO, "geomq.broker"):
        for _ in range(3):
            bench.drops.for_peer("b", Reason.QUEUE_FULL, 2)
            bench.drops.report()
        bench.drops.report(finally_=True)
        bench.drops.report(finally_=True)
    assert [record.events for record in caplog.records] == [2, 4]  # type: ignore[attr-defined]
