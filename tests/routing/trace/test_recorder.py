"""What a record says of what a node took in and asked for."""

import pytest

from geomq.errors import UsageError
from geomq.geo import Circle, Location
from geomq.routing.core.actions import DeliverToClients, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientSubscribed,
    ClientUnsubscribed,
    PeerSaid,
    RoutingEvent,
)
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, PutSubscription, SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.retained.versions import PutRetained
from geomq.routing.sharing.groups import PutMember
from geomq.routing.trace.recorder import SESSION_ENDED, Recorder, event_of
from geomq.routing.trace.records import TraceRecord, record_fields

PARIS, ROME = BrokerId("paris"), BrokerId("rome")
CLIENT, SHARED = ClientId("c"), ClientId("c\0$share/g/")
HERE = Location(48.9, 2.4)
FENCE = Circle(HERE, 5_000.0)
EVENT = Event(EventId(PARIS, 3, 7), "t", CLIENT, HERE, FENCE, b"four", 1)


class Told:
    """A recorder and what it told."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.recorder = Recorder(PARIS, self.records.append)

    def acted(self, event: RoutingEvent) -> list[dict[str, object]]:
        self.recorder.acted(5, event)
        return [record_fields(record) for record in self.records]


def test_a_client_is_named_plainly_whatever_its_subscription_key() -> None:
    told = Told()
    told.acted(ClientMoved(CLIENT, HERE))
    told.acted(ClientMoved(SHARED, HERE))
    told.acted(ClientSubscribed(SHARED, "t/#", FENCE))
    told.acted(ClientUnsubscribed(SHARED, "t/#"))
    told.acted(ClientGone(SHARED))
    fields = told.acted(ClientGone(CLIENT))
    common = {"t_ms": 5, "broker": "paris", "client": "c"}
    subscription = {"kind": "subscription", "topic": "$share/g/t/#"}
    assert fields == [
        common | {"step": "moved", "kind": "location", "lat": 48.9, "lon": 2.4},
        common | subscription | {"step": "subscribed", "fence": "geo:48.9,2.4;u=5000.0"},
        common | subscription | {"step": "unsubscribed"},
        common | {"step": "disconnected", "kind": "client", "reason": SESSION_ENDED},
    ]


def test_an_event_is_recorded_with_all_that_matters_for_its_way() -> None:
    told = Told()
    told.recorder.published(5, EVENT)
    assert record_fields(told.records[0]) == {
        "t_ms": 5,
        "broker": "paris",
        "step": "published",
        "kind": "event",
        "event_id": "paris:3:7",
        "client": "c",
        "topic": "t",
        "lat": 48.9,
        "lon": 2.4,
        "fence": "geo:48.9,2.4;u=5000.0",
        "qos": 1,
        "size": 4,
    }


def test_a_match_is_recorded_where_it_was_made_and_nowhere_else() -> None:
    told, matches = Told(), (Match(SHARED, "t"), Match(ClientId("d"), "#"))
    deliver = DeliverToClients(EVENT, matches)
    said = PeerSaid(ROME, DeliverEvent(EVENT, matches))
    told.recorder.decided(5, None, [deliver, SendToPeer(ROME, said.message)])
    assert [(r.step, r.peer, r.client, r.topic, r.reason) for r in told.records] == [
        ("matched", None, "c", "$share/g/t", None),
        ("matched", None, "d", "#", None),
        ("matched", "rome", "c", "$share/g/t", None),
        ("matched", "rome", "d", "#", None),
        ("sent", "rome", None, "t", "DeliverEvent"),
    ]
    told.records.clear()
    told.recorder.decided(6, said, [deliver])
    assert told.records == []


def test_every_member_of_a_share_group_that_may_be_served_is_recorded() -> None:
    told = Told()
    told.acted(ClientSubscribed(ClientId("d"), "t", None, "g"))
    told.recorder.decided(5, None, [DeliverToOne(EVENT, "g", "t", (SHARED, ClientId("d")))])
    told.recorder.passed(5, "sent", ROME, PutMember(ClientId("d"), "g", "t", None, None, True))
    assert [(r.step, r.client, r.topic) for r in told.records] == [
        ("subscribed", "d", "$share/g/t"),
        ("matched", "c", "$share/g/t"),
        ("matched", "d", "$share/g/t"),
        ("sent", "d", "$share/g/t"),
    ]


def test_a_drop_says_why() -> None:
    told = Told()
    told.recorder.decided(5, None, [DropEvent(EVENT.id, "hop limit")])
    told.recorder.passed(6, "dropped", ROME, ForwardEvent(EVENT), "link down")
    assert [(r.step, r.event_id, r.peer, r.reason) for r in told.records] == [
        ("dropped", EVENT.id, None, "hop limit"),
        ("dropped", EVENT.id, "rome", "link down"),
    ]


def test_a_message_without_an_event_says_whom_it_is_about() -> None:
    told = Told()
    told.recorder.passed(5, "sent", ROME, PutSubscription(SHARED, "t", FENCE, HERE))
    told.recorder.passed(5, "received", ROME, SyncBegin())
    put, sync = told.records
    assert (put.kind, put.client, put.topic, put.lat, put.fence) == (
        "subscription",
        "c",
        "$share/g/t",
        48.9,
        "geo:48.9,2.4;u=5000.0",
    )
    assert (sync.kind, sync.client, sync.reason) == ("control", None, "SyncBegin")


def test_the_version_of_a_retained_event_is_not_taken_for_an_id() -> None:
    told = Told()
    told.recorder.passed(5, "sent", ROME, PutRetained(EVENT))
    assert (told.records[0].event_id, told.records[0].topic) == (None, "t")
    assert event_of(PutRetained(EVENT)) is None
    assert event_of(ForwardEvent(EVENT)) == EVENT.id
    assert event_of(SyncBegin()) is None


def test_an_id_is_read_as_it_is_written() -> None:
    odd = EventId(BrokerId("New York: East"), 0, 12)
    assert [EventId.parse(str(each)) for each in (EVENT.id, odd)] == [EVENT.id, odd]
    for bad in ("", "paris", "paris:1", ":1:2", "paris:x:2", "paris:1:-2", "p:1:²", "p:1:" + "9" * 30):
        with pytest.raises(UsageError, match="is not an event id"):
            EventId.parse(bad)
