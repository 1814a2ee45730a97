"""The session at the cloud, packet by packet."""

from typing import Any

import msgspec
import pytest

from geomq.broker.cloud.codec import CloudReader, publish_of_event
from geomq.broker.cloud.kept import UNCERTAIN, NothingKept
from geomq.broker.cloud.session import IDS, CloudSession
from geomq.broker.state.drops import Reason
from geomq.errors import ProtocolError
from geomq.geo import parse_fence
from geomq.mqtt.client.events import Connected
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.groups.messages import (
    CloudAnnounce,
    CloudPing,
    CloudPong,
    CloudPublish,
    CloudSubscribe,
    CloudUnsubscribe,
)

OK = (ReasonCode.SUCCESS,)


class Notes(NothingKept):
    """A disk that outlives sessions."""

    durable = True

    def __init__(self) -> None:
        self.held: dict[int, Event] = {}
        self.known: dict[str, int] = {}

    def events(self) -> list[Event]:
        waiting = list(self.held.values())
        self.held = dict(enumerate(waiting))
        return waiting

    def filters(self) -> dict[str, int]:
        return dict(self.known)

    def keep_event(self, number: int, event: Event) -> None:
        self.held[number] = event

    def events_done(self, number: int) -> None:
        self.held = {n: event for n, event in self.held.items() if n >= number}

    def keep_filter(self, topic_filter: str, number: int) -> None:
        self.known[topic_filter] = number

    def drop_filter(self, topic_filter: str) -> None:
        self.known.pop(topic_filter, None)


class Bench:
    """A session and what it complained about."""

    def __init__(
        self,
        *,
        events_max: int = 100,
        bytes_max: int = 1 << 20,
        expiry_s: int = 60,
        kept: NothingKept | None = None,
    ) -> None:
        self.complaints: list[str] = []
        self.lost: list[Reason] = []
        reader = CloudReader(
            me=BrokerId("me"),
            cloud=BrokerId("cloud"),
            epoch=1,
            leaders_topic="DG/leaders",
            fence_of=parse_fence,
            is_ours=lambda _: False,
        )
        self.now = 0.0
        self.session = CloudSession(
            reader,
            connect=Connect("me", properties=Properties(session_expiry_interval=expiry_s)),
            events_max=events_max,
            bytes_max=bytes_max,
            packet_bytes_max=1 << 20,
            complain=self.complaints.append,
            lost=self.lost.append,
            clock=lambda: self.now,
            kept=kept,
        )
        self.mqtt = self.session.mqtt

    def connect(self, *, present: bool = False, **limits: Any) -> list[Packet]:
        self.mqtt.open(self.now)
        (connect,) = Decoder(Side.SERVER).feed(self.mqtt.take_bytes(self.now))
        assert isinstance(connect, Connect)
        self.clean = connect.clean_start
        self.mqtt.receive(encode(Connack(present, properties=Properties(**limits)), V5), self.now)
        for event in self.mqtt.take_events():
            assert isinstance(event, Connected)
            self.remembered = self.session.connected(event)
        return self.sent()

    def disconnect(self) -> None:
        self.mqtt.close()
        self.events()
        self.session.disconnected()

    def send(self, *messages: Any) -> list[Packet]:
        for message in messages:
            self.session.send(message)
        return self.sent()

    def hear(self, *packets: Packet) -> list[Any]:
        self.mqtt.receive(b"".join(encode(packet, V5) for packet in packets), self.now)
        return self.events()

    def events(self) -> list[Any]:
        return [message for event in self.mqtt.take_events() for message in self.session.receive(event)]

    def sent(self) -> list[Packet]:
        packets = list(Decoder(Side.SERVER, version=V5).feed(self.mqtt.take_bytes(self.now)))
        self.events()
        return packets


def event(number: int, *, qos: int = 1, topic: str = "t", payload: bytes = b"x") -> Event:
    return Event(EventId(BrokerId("me"), 1, number), topic, ClientId("c"), None, None, payload, qos)


def publish(number: int, **more: Any) -> CloudPublish:
    return CloudPublish(event(number, **more))


def ids(packets: list[Packet]) -> list[int]:
    return [packet.packet_id for packet in packets if isinstance(packet, Publish | Subscribe | Unsubscribe | Pubrel)]


def numbers(packets: list[Packet]) -> list[str]:
    return [p.properties.user("geo-event") or "" for p in packets if isinstance(p, Publish)]


def test_a_filter_is_subscribed_without_echo_and_with_its_retain_flags() -> None:
    bench = Bench()
    bench.connect()
    fetch, live = bench.send(CloudSubscribe("a/#"))
    assert isinstance(fetch, Subscribe)
    assert isinstance(live, Subscribe)
    for packet in (fetch, live):
        (request,) = packet.requests
        assert (request.topic_filter, request.qos) == ("a/#", 2)
        assert request.no_local
        assert request.retain_as_published
    assert (fetch.requests[0].retain_handling, live.requests[0].retain_handling) == (0, 2)
    assert fetch.properties.subscription_identifiers != live.properties.subscription_identifiers


def test_a_cloud_without_subscription_identifiers_is_asked_once() -> None:
    bench = Bench()
    bench.connect(subscription_identifier_available=0)
    (packet,) = bench.send(CloudSubscribe("a"))
    assert isinstance(packet, Subscribe)
    assert packet.properties.subscription_identifiers == ()


def test_topics_with_a_dollar_stay_here() -> None:
    bench = Bench()
    bench.connect()
    dollar = (publish(1, topic="$SYS/x"), CloudSubscribe("$SYS/#"), CloudUnsubscribe("$SYS/#"))
    assert bench.send(*dollar) == []


def test_while_the_cloud_is_away_only_events_wait() -> None:
    bench = Bench()
    assert (
        bench.send(CloudSubscribe("a"), CloudPing(1), publish(1), CloudAnnounce("DG/leaders", BrokerId("me"), 1)) == []
    )
    assert numbers(bench.connect()) == ["me:1:1"]


def test_a_mark_is_passed_when_everything_before_it_is_acknowledged() -> None:
    bench = Bench()
    bench.connect()
    sent = bench.send(CloudSubscribe("a"), publish(1), CloudPing(1), publish(2), CloudPing(2))
    one, two, first, ping, second, again = sent
    assert isinstance(ping, Pingreq)
    assert isinstance(again, Pingreq)
    a, b, c, d = ids([one, two, first, second])
    assert bench.hear(Pingresp(), Pingresp(), Puback(d)) == []
    assert bench.hear(Suback(a, OK), Suback(b, OK)) == []
    assert bench.hear(Puback(c)) == [CloudPong(1), CloudPong(2)]


def test_a_mark_waits_for_its_own_answer() -> None:
    bench = Bench()
    bench.connect()
    bench.now = 3.0
    bench.mqtt.on_deadline(3.0)
    bench.send(CloudPing(5))
    assert bench.hear(Pingresp()) == []
    assert bench.hear(Pingresp()) == [CloudPong(5)]


def test_no_more_is_on_its_way_than_the_cloud_allows() -> None:
    bench = Bench()
    bench.connect(receive_maximum=2)
    sent = bench.send(*(publish(number) for number in range(5)), CloudPing(1))
    assert numbers(sent) == ["me:1:0", "me:1:1"]
    bench.hear(Puback(ids(sent)[0]))
    assert numbers(bench.sent()) == ["me:1:2"]


def test_beyond_the_bound_the_oldest_events_are_dropped_and_counted() -> None:
    bench = Bench(events_max=3)
    bench.send(*(publish(number) for number in range(5)))
    assert bench.lost == [Reason.QUEUE_FULL] * 2
    assert numbers(bench.connect()) == ["me:1:2", "me:1:3", "me:1:4"]


def test_what_the_cloud_cannot_take_is_refused_in_one_line() -> None:
    bench = Bench()
    bench.connect(maximum_packet_size=200)
    assert bench.send(publish(1, payload=b"x" * 500)) == []
    assert bench.lost == [Reason.UNSENDABLE]
    assert "the broker accepts at most 200" in bench.complaints[0]
    assert bench.send(publish(2)) != []


def test_the_clouds_maximum_qos_holds() -> None:
    bench = Bench()
    bench.connect(maximum_qos=1, retain_available=0)
    (packet,) = bench.send(publish(1, qos=2))
    assert isinstance(packet, Publish)
    assert packet.qos == 1


def test_qos_2_goes_through_its_whole_handshake() -> None:
    bench = Bench()
    bench.connect()
    (number,) = ids(bench.send(publish(1, qos=2), CloudPing(1)))
    bench.hear(Pingresp(), Pubrec(number))
    assert bench.sent() == [Pubrel(number)]
    assert bench.hear(Pubcomp(number)) == [CloudPong(1)]


def test_a_resumed_session_repeats_what_was_not_acknowledged() -> None:
    bench = Bench()
    bench.connect()
    first, second = ids(bench.send(publish(1), publish(2, qos=2)))
    bench.hear(Pubrec(second))
    bench.sent()
    bench.disconnect()
    again, release = bench.connect(present=True)
    assert isinstance(again, Publish)
    assert (again.packet_id, again.dup) == (first, True)
    assert release == Pubrel(second)


def test_a_resumed_session_keeps_its_filters_and_forgets_those_nobody_claims() -> None:
    bench = Bench()
    bench.connect()
    for number in ids(bench.send(CloudSubscribe("kept"), CloudSubscribe("gone"))):
        bench.hear(Suback(number, OK))
    bench.disconnect()
    assert bench.connect(present=True) == []
    assert bench.send(CloudSubscribe("kept")) == []
    bench.session.drop_unclaimed()
    (packet,) = bench.sent()
    assert isinstance(packet, Unsubscribe)
    assert packet.topic_filters == ("gone",)


def test_an_unsubscribe_that_was_not_acknowledged_is_repeated() -> None:
    bench = Bench()
    bench.connect()
    for number in ids(bench.send(CloudSubscribe("a"))):
        bench.hear(Suback(number, OK))
    bench.send(CloudUnsubscribe("a"))
    bench.disconnect()
    (packet,) = bench.connect(present=True)
    assert isinstance(packet, Unsubscribe)


def test_a_subscribe_that_was_not_acknowledged_is_no_subscription() -> None:
    bench = Bench()
    bench.connect()
    bench.send(CloudSubscribe("a"))
    bench.disconnect()
    assert [type(packet) for packet in bench.connect(present=True)] == [Unsubscribe]
    assert [type(packet) for packet in bench.send(CloudSubscribe("a"))] == [Subscribe, Subscribe]


def test_a_cloud_that_forgot_gets_the_events_later() -> None:
    bench = Bench()
    bench.connect()
    for number in ids(bench.send(CloudSubscribe("a"))):
        bench.hear(Suback(number, OK))
    bench.send(publish(1))
    bench.disconnect()
    bench.send(publish(2))
    assert bench.connect() == []
    assert [type(packet) for packet in bench.send(CloudSubscribe("a"), publish(3))] == [Subscribe, Subscribe]
    bench.session.let_events_go()
    assert numbers(bench.sent()) == ["me:1:1", "me:1:2", "me:1:3"]


def test_a_restart_takes_up_what_was_on_disk() -> None:
    notes = Notes()
    bench = Bench(kept=notes)
    bench.connect()
    first, second = ids(bench.send(CloudSubscribe("kept")))
    bench.hear(Suback(first, OK))
    assert notes.known == {"kept": UNCERTAIN}
    bench.hear(Suback(second, OK))
    done, _ = ids(bench.send(publish(1), publish(2), publish(3, qos=0), CloudSubscribe("half")))[:2]
    bench.hear(Puback(done))
    assert list(notes.held.values()) == [event(2)]
    again = Bench(kept=notes)
    released = again.connect(present=True)
    assert not again.clean
    again.hear(*[Pubcomp(packet_id) for packet_id in ids(released)])
    sent = again.sent()
    assert numbers(sent) == ["me:1:2"]
    assert [type(packet) for packet in again.send(CloudSubscribe("kept"))] == []
    (number,) = [packet.packet_id for packet in sent if isinstance(packet, Unsubscribe)]
    again.hear(Unsuback(number, OK))
    assert set(notes.known) == {"kept"}


def test_what_an_earlier_start_left_open_at_the_cloud_is_ended_before_anything_is_sent() -> None:
    again = Bench(kept=Notes())
    again.send(publish(1, qos=2))
    released = again.connect(present=True)
    assert {type(packet) for packet in released} == {Pubrel}
    assert ids(released) == list(range(1, IDS + 1))
    first, *others = released
    assert isinstance(first, Pubrel)
    again.hear(Pubcomp(first.packet_id))
    (sent,) = again.sent()
    assert isinstance(sent, Publish)
    assert sent.packet_id == first.packet_id
    again.hear(*[Pubcomp(packet_id) for packet_id in ids(others)])
    assert again.sent() == []


def test_a_cloud_that_forgot_the_session_has_nothing_to_end() -> None:
    again = Bench(kept=Notes())
    again.send(publish(1, qos=2))
    assert numbers(again.connect(present=False)) == ["me:1:1"]


def test_messages_of_qos_2_are_taken_once() -> None:
    bench = Bench()
    bench.connect()
    packet = msgspec.structs.replace(publish_of_event(event(9, qos=2)), packet_id=5)
    again = msgspec.structs.replace(packet, dup=True)
    assert len(bench.hear(packet, again, again)) == 1


def test_an_identifier_used_anew_is_a_new_message() -> None:
    bench = Bench()
    bench.connect()
    one, other = (msgspec.structs.replace(publish_of_event(event(n, qos=2)), packet_id=5) for n in (1, 2))
    assert len(bench.hear(one)) == 1
    bench.disconnect()
    bench.connect(present=True)
    assert len(bench.hear(other)) == 1


def test_a_cloud_that_keeps_no_session_gets_the_events_later_every_time() -> None:
    bench = Bench(expiry_s=0)
    bench.connect()
    bench.send(publish(1))
    bench.disconnect()
    assert bench.connect() == []
    assert bench.clean
    assert not bench.remembered


def test_an_old_announcement_is_not_sent() -> None:
    bench = Bench()
    bench.connect()
    bench.session.send(CloudAnnounce("DG/leaders", BrokerId("me"), 1))
    bench.session.send(publish(1, qos=0))
    bench.disconnect()
    assert numbers(bench.connect(present=True)) == ["me:1:1"]


def test_bytes_are_bounded_too() -> None:
    bench = Bench(bytes_max=2_000)
    for number in range(5):
        bench.send(publish(number, payload=bytes(500)))
    assert bench.lost == [Reason.QUEUE_FULL] * 4
    assert numbers(bench.connect()) == ["me:1:4"]


def test_a_cloud_over_its_quota_gets_the_event_again_later() -> None:
    bench = Bench()
    bench.connect()
    (number,) = ids(bench.send(publish(1)))
    with pytest.raises(ProtocolError):
        bench.hear(Puback(number, ReasonCode.QUOTA_EXCEEDED))
    bench.disconnect()
    assert numbers(bench.connect(present=True)) == ["me:1:1"]


def test_a_refused_filter_is_named_and_blocks_nothing() -> None:
    bench = Bench()
    bench.connect()
    one, two = ids(bench.send(CloudSubscribe("a"), CloudPing(1)))
    denied = (ReasonCode.NOT_AUTHORIZED,)
    assert bench.hear(Suback(one, denied), Suback(two, denied), Pingresp()) == [CloudPong(1)]
    assert bench.complaints[0] == "the cloud refused 'a': not authorized"


def test_answers_to_nothing_are_ignored() -> None:
    bench = Bench()
    bench.connect()
    assert bench.hear(Puback(7), Suback(8, OK), Unsuback(9, OK), Pubcomp(7), Pingresp()) == []
    bench.hear(Pubrec(7))
    assert bench.sent() == [Pubrel(7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
