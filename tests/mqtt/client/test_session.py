"""What a client session sends and reports, packet by packet."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mqtt.client.server import Pipe, Server

from geomq.errors import ProtocolError
from geomq.mqtt.client.events import (
    Acknowledged,
    Answered,
    Connected,
    ConnectRefused,
    Dropped,
    Ended,
    Event,
    Repeated,
    server_references,
    words,
)
from geomq.mqtt.client.requests import QueueFull
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.faults import MqttError
from geomq.mqtt.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
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
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.handshake import Policy

KEPT = Properties(session_expiry_interval=60)
CONNECT = Connect("c", properties=KEPT, keep_alive=0, clean_start=False)


class Bench:
    """A session and what it is told by hand."""

    def __init__(self, policy: ClientPolicy | None = None, connect: Connect = CONNECT) -> None:
        self.session = ClientSession(connect, policy)
        self.version = connect.version
        self.now = 0.0

    def sent(self) -> list[Packet]:
        """What it writes."""
        data = self.session.take_bytes(self.now)
        connects = data[:1] == b"\x10"
        return list(Decoder(Side.SERVER, version=None if connects else self.version).feed(data))

    def hear(self, *packets: Packet) -> list[Event]:
        self.session.receive(b"".join(encode(packet, self.version) for packet in packets), self.now)
        return self.session.take_events()

    def up(self, *, present: bool = False, **limits: Any) -> "Bench":
        self.session.open(self.now)
        self.sent()
        self.hear(Connack(present, properties=Properties(**limits)))
        return self

    def again(self, *, present: bool = True, **limits: Any) -> "Bench":
        self.session.close()
        return self.up(present=present, **limits)

    def publish(self, topic: str = "t", payload: bytes = b"x", qos: int = 0, **properties: Any) -> None:
        packet = Publish(topic, payload, qos, properties=Properties(**properties))
        self.session.publish(packet, self.now, tag=payload)


def test_the_connect_says_what_the_policy_wants() -> None:
    policy = ClientPolicy(receive_max=7, packet_size_max=1_000, alias_max=3)
    will = Will("w", b"gone", 1, True, Properties(will_delay_interval=5))
    bench = Bench(policy, Connect("c", will=will, username="u", password=b"p", properties=KEPT))
    bench.session.open(0.0)
    (connect,) = bench.sent()
    properties = Properties(
        session_expiry_interval=60, receive_maximum=7, maximum_packet_size=1_000, topic_alias_maximum=3
    )
    assert connect == Connect("c", will=will, username="u", password=b"p", properties=properties)


def test_mqtt_3_has_no_properties_and_the_first_connack_counts() -> None:
    bench = Bench(connect=Connect("c", V311, clean_start=False))
    bench.session.open(0.0)
    assert bench.sent() == [Connect("c", V311, clean_start=False)]
    (event,) = bench.hear(Connack(True))
    assert event == Connected(Connack(True), lost=False)
    with pytest.raises(ProtocolError, match="CONNACK is not expected now"):
        bench.hear(Connack())


def test_the_id_the_server_gives_is_kept() -> None:
    bench = Bench(connect=Connect("", properties=KEPT))
    bench.session.open(0.0)
    bench.sent()
    bench.hear(Connack(properties=Properties(assigned_client_identifier="given")))
    assert bench.session.client_id == "given"
    bench.session.close()
    bench.session.open(0.0)
    assert isinstance(connect := bench.sent()[0], Connect)
    assert (connect.client_id, connect.clean_start) == ("given", False)


def test_a_session_that_ends_with_its_connection_begins_anew() -> None:
    bench = Bench(connect=Connect("c", clean_start=False)).up()
    bench.session.close()
    bench.session.open(0.0)
    assert isinstance(connect := bench.sent()[0], Connect)
    assert connect.clean_start
    with pytest.raises(ProtocolError, match="although a new one was requested"):
        bench.hear(Connack(True))


@pytest.mark.parametrize("version", [V5, V311])
def test_a_refusal_is_reported(version: int) -> None:
    bench = Bench(connect=Connect("c", version))
    bench.session.open(0.0)
    (event,) = bench.hear(Connack(False, ReasonCode.NOT_AUTHORIZED))
    assert event == ConnectRefused(ReasonCode.NOT_AUTHORIZED)
    assert not bench.session.up


def test_a_server_of_the_old_version_refuses_in_its_own_words() -> None:
    bench = Bench()
    bench.session.open(0.0)
    bench.session.receive(b"\x20\x02\x00\x01", 0.0)
    assert bench.session.take_events() == [ConnectRefused(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)]


def test_a_server_says_where_to_go() -> None:
    bench = Bench().up()
    properties = Properties(server_reference="a:1  b:2")
    (event,) = bench.hear(Disconnect(ReasonCode.USE_ANOTHER_SERVER, properties))
    assert isinstance(event, Ended)
    assert server_references(event.reason, event.properties) == ("a:1", "b:2")
    assert server_references(ReasonCode.SERVER_BUSY, properties) == ()
    assert words(event.reason) == "Use another server"
    assert words(event.reason, Properties(reason_string="go\n away")) == "go away"


def test_requests_wait_for_the_connection_and_keep_their_order() -> None:
    bench = Bench()
    bench.publish("a", qos=1)
    bench.session.subscribe(SubscribeRequest("f", 1))
    bench.publish("b", qos=0)
    bench.session.unsubscribe("f")
    bench.up()
    assert bench.sent() == [
        Publish("a", b"x", 1, packet_id=1),
        Subscribe(2, (SubscribeRequest("f", 1),)),
        Publish("b", b"x"),
        Unsubscribe(3, ("f",)),
    ]
    assert [event.request.subject for event in bench.session.take_events() if isinstance(event, Acknowledged)] == ["b"]
    events = bench.hear(
        Puback(1, ReasonCode.NOT_AUTHORIZED),
        Suback(2, (ReasonCode.GRANTED_QOS_1,)),
        Unsuback(3, (ReasonCode.SUCCESS,)),
    )
    acknowledged = [event for event in events if isinstance(event, Acknowledged)]
    assert [event.request.subject for event in acknowledged] == ["a", "f", "f"]
    assert [event.refusal for event in acknowledged] == [ReasonCode.NOT_AUTHORIZED, None, None]


def test_unanswered_requests_are_sent_again_as_mqtt_wants_it() -> None:
    bench = Bench().up()
    bench.publish("a", qos=1)
    bench.publish("b", qos=2)
    bench.publish("c", qos=2)
    bench.session.subscribe(SubscribeRequest("f"))
    bench.sent()
    bench.hear(Pubrec(3), Pubrec(2))
    assert bench.sent() == [Pubrel(3), Pubrel(2)]
    bench.publish("d", qos=1)
    bench.again()
    assert bench.sent() == [
        Publish("a", b"x", 1, dup=True, packet_id=1),
        Pubrel(3),
        Pubrel(2),
        Subscribe(5, (SubscribeRequest("f"),)),
        Publish("d", b"x", 1, packet_id=6),
    ]


def test_a_server_that_lost_the_session_gets_everything_unfinished_as_new() -> None:
    bench = Bench(ClientPolicy(resubscribes=True)).up()
    bench.session.subscribe(SubscribeRequest("f", 2), properties=Properties(subscription_identifiers=(3,)))
    bench.publish("a", qos=2)
    bench.publish("b", qos=1)
    bench.sent()
    bench.hear(Suback(1, (ReasonCode.GRANTED_QOS_2,)), Pubrec(2))
    bench.session.close()
    bench.session.open(0.0)
    bench.sent()
    (event,) = bench.hear(Connack())
    assert event == Connected(Connack(), lost=True)
    assert bench.sent() == [
        Subscribe(4, (SubscribeRequest("f", 2),), Properties(subscription_identifiers=(3,))),
        Publish("a", b"x", 2, packet_id=5),
        Publish("b", b"x", 1, packet_id=6),
    ]


def test_a_filter_that_is_unsubscribed_or_refused_is_not_subscribed_to_again() -> None:
    bench = Bench(ClientPolicy(resubscribes=True)).up()
    bench.session.subscribe(SubscribeRequest("f"), SubscribeRequest("g"), SubscribeRequest("h"))
    bench.session.unsubscribe("f")
    bench.sent()
    bench.hear(Suback(1, (ReasonCode.GRANTED_QOS_0, ReasonCode.NOT_AUTHORIZED, ReasonCode.GRANTED_QOS_0)))
    bench.hear(Unsuback(2, (ReasonCode.SUCCESS,)))
    assert bench.again(present=False).sent() == [Subscribe(3, (SubscribeRequest("h"),))]


def test_the_receive_maximum_holds_also_for_what_is_repeated() -> None:
    bench = Bench().up(receive_maximum=3)
    for _ in range(5):
        bench.publish(qos=1)
    assert len(bench.sent()) == 3
    assert bench.again(receive_maximum=1).sent() == [Publish("t", b"x", 1, dup=True, packet_id=1)]
    bench.hear(Puback(1))
    assert bench.sent() == [Publish("t", b"x", 1, dup=True, packet_id=2)]


def test_a_resumed_server_that_may_have_lost_its_last_moments_gets_half_the_window() -> None:
    bench = Bench(ClientPolicy(halves=True)).up(present=True, receive_maximum=4)
    for _ in range(5):
        bench.publish(qos=1)
    assert len(bench.sent()) == 2


def test_what_the_server_does_not_take_is_dropped_with_a_reason_or_sent_as_it_does() -> None:
    limits: dict[str, Any] = {"maximum_qos": 1, "retain_available": 0, "maximum_packet_size": 20}
    bench = Bench().up(**limits)
    bench.publish("a", qos=2)
    bench.session.publish(Publish("b", retain=True), 0.0)
    bench.publish("c", b"x" * 20)
    bench.publish("\udcff")
    bench.publish("d", content_type="x", payload_format_indicator=1 << 40)
    assert bench.sent() == []
    dropped = [event.why for event in bench.session.take_events() if isinstance(event, Dropped)]
    assert dropped == [
        "the broker accepts at most QoS 1",
        "the broker does not support retained messages",
        "the packet has 26 bytes; the broker accepts at most 20",
        "text with surrogates cannot be sent over MQTT",
        "byte must be in range(0, 256)",
    ]
    assert bench.session.dropped == 5
    assert len(bench.session.requests) == 0
    bench = Bench(ClientPolicy(adapts=True)).up(**limits)
    bench.session.publish(Publish("a", b"", 2, retain=True), 0.0)
    assert bench.sent() == [Publish("a", b"", 1, packet_id=1)]


def test_a_full_queue_refuses_or_gives_up_its_oldest() -> None:
    bench = Bench(ClientPolicy(queue_max=2))
    bench.publish()
    bench.publish()
    with pytest.raises(QueueFull, match="2 messages are queued for the server"):
        bench.publish()
    bench = Bench(ClientPolicy(queue_max=2, drop_oldest=True))
    for payload in (b"1", b"2", b"3"):
        bench.publish(payload=payload)
    (event,) = bench.session.take_events()
    assert isinstance(event, Dropped)
    assert (event.request.tag, event.why) == (b"1", "the queue is full")
    assert bench.up().sent() == [Publish("t", b"2"), Publish("t", b"3")]
    bench = Bench(ClientPolicy(queue_bytes_max=1_000, drop_oldest=True))
    bench.publish(payload=bytes(2_000))
    assert bench.session.take_events() == []
    bench.publish()
    assert len(bench.session.take_events()) == 1


def test_a_message_that_waited_says_how_long_it_has_left() -> None:
    bench = Bench()
    bench.publish(message_expiry_interval=10)
    bench.publish(message_expiry_interval=20)
    bench.now = 12.5
    assert bench.up().sent() == [Publish("t", b"x", properties=Properties(message_expiry_interval=8))]
    assert [event.why for event in bench.session.take_events() if isinstance(event, Dropped)] == [
        "it expired in the queue"
    ]


def test_messages_can_be_withheld_while_all_else_goes_on() -> None:
    bench = Bench()
    bench.publish("a", qos=1)
    bench.up()
    bench.session.requests.withhold()
    bench.publish("b", qos=1)
    bench.session.subscribe(SubscribeRequest("f"))
    assert bench.sent() == [Subscribe(1, (SubscribeRequest("f"),))]
    bench.session.requests.let_go()
    assert [packet.topic for packet in bench.sent() if isinstance(packet, Publish)] == ["a", "b"]


def test_a_server_without_room_gets_the_message_again_later_if_asked_to() -> None:
    bench = Bench(ClientPolicy(retries_quota=True)).up()
    bench.publish(qos=1)
    bench.sent()
    with pytest.raises(ProtocolError, match="receive window is full"):
        bench.hear(Puback(1, ReasonCode.QUOTA_EXCEEDED))
    assert bench.again().sent() == [Publish("t", b"x", 1, dup=True, packet_id=1)]


def test_a_ping_is_passed_when_all_before_it_is_finished() -> None:
    bench = Bench().up()
    bench.publish("a", qos=2)
    bench.session.ping("mark")
    bench.publish("b", qos=1)
    assert [type(packet) for packet in bench.sent()] == [Publish, Pingreq, Publish]
    assert bench.hear(Pingresp()) == []
    bench.hear(Pubrec(1))
    answered = bench.hear(Pubcomp(1))
    assert [event.request.tag for event in answered if isinstance(event, Answered)] == ["mark"]


def test_the_server_is_asked_whether_it_is_there_and_given_up_when_it_is_not() -> None:
    bench = Bench(ClientPolicy(answer_s=5.0), Connect("c", keep_alive=20))
    session = bench.session
    session.open(0.0)
    assert session.next_deadline() == 5.0
    session.on_deadline(4.9)
    with pytest.raises(ProtocolError, match="no CONNACK within 5 s"):
        session.on_deadline(5.0)
    session.close()
    bench.up()
    bench.now = 3.0
    bench.hear(Publish("t"))
    assert session.next_deadline() == 10.0  # nothing was sent since the beginning
    bench.now = 10.0
    session.on_deadline(10.0)
    assert bench.sent() == [Pingreq()]
    assert session.next_deadline() == 15.0
    bench.now = 14.0
    assert bench.hear(Pingresp()) == []
    assert session.next_deadline() == 20.0
    bench.now = 20.0
    session.on_deadline(20.0)
    bench.sent()
    session.heard(24.0)
    session.on_deadline(28.0)
    with pytest.raises(MqttError, match="does not answer") as caught:
        session.on_deadline(29.0)
    assert session.farewell(caught.value) == encode(Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT), V5)
    session.close()
    assert session.next_deadline() is None


def test_a_client_that_was_asleep_asks_before_it_gives_up() -> None:
    bench = Bench(ClientPolicy(answer_s=5.0), Connect("c", keep_alive=20)).up()
    bench.now = 1_000.0
    bench.session.on_deadline(1_000.0)
    assert bench.sent() == [Pingreq()]
    assert bench.session.next_deadline() == 1_005.0


def test_a_client_that_does_not_read_goes_on_asking() -> None:
    bench = Bench(ClientPolicy(answer_s=5.0), Connect("c", keep_alive=20)).up()
    pings = 0
    for second in range(100):
        bench.now = float(second)
        bench.session.heard(bench.now)
        bench.session.on_deadline(bench.now)
        pings += len(bench.sent())
    assert pings == 9


def test_the_servers_keep_alive_counts() -> None:
    bench = Bench(connect=Connect("c", keep_alive=20)).up(server_keep_alive=6)
    assert bench.session.next_deadline() == 3.0
    assert Bench().up().session.next_deadline() is None
    bench = Bench(ClientPolicy(ping_s=1.0)).up()
    assert bench.session.next_deadline() == 1.0
    bench.session.heard(9.0)
    bench.now = 1.0
    bench.session.on_deadline(1.0)
    assert bench.sent() == [Pingreq()]


def test_messages_are_acknowledged_on_arrival() -> None:
    bench = Bench().up()
    first, second = Publish("t", b"1", 1, packet_id=5), Publish("t", b"2", 2, packet_id=6)
    assert bench.hear(Publish("t", b"0"), first, second) == [Publish("t", b"0"), first, second]
    assert bench.sent() == [Puback(5), Pubrec(6)]
    again = Publish("t", b"2", 2, packet_id=6, dup=True)
    assert bench.hear(again) == []
    assert bench.hear(Pubrel(6), Pubrel(7)) == []
    assert bench.sent() == [Pubrec(6), Pubcomp(6), Pubcomp(7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert bench.hear(second) == [second]


def test_the_program_acknowledges_when_it_is_done() -> None:
    bench = Bench(ClientPolicy(manual=True)).up()
    one = Publish("t", b"1", 1, packet_id=5)
    two = Publish("t", b"2", 2, packet_id=6)
    three = Publish("t", b"3", 1, packet_id=7)
    events = bench.hear(one, two, three)
    assert bench.sent() == []
    first, second, third = (event for event in events if isinstance(event, Publish))
    assert bench.session.acknowledge(first) == encode(Puback(5), V5)
    assert bench.session.acknowledge(first) == b""
    assert bench.session.acknowledge(second) == encode(Pubrec(6), V5)
    bench.again()
    assert bench.session.acknowledge(third) == b""
    repeats = [Publish("t", b"2", 2, dup=True, packet_id=6), Publish("t", b"3", 1, dup=True, packet_id=7)]
    events = bench.hear(*repeats)
    assert events == [Repeated(repeats[0]), Repeated(repeats[1])]
    answers = [bench.session.acknowledge(event) for event in events if isinstance(event, Repeated)]
    assert answers == [encode(Pubrec(6), V5), encode(Puback(7), V5)]


def test_what_comes_again_before_the_program_is_done_is_the_same_message() -> None:
    bench = Bench(ClientPolicy(manual=True)).up()
    (message,) = bench.hear(Publish("t", b"1", 1, packet_id=5))
    assert isinstance(message, Publish)
    assert bench.again().hear(Publish("t", b"1", 1, dup=True, packet_id=5)) == []
    assert bench.session.acknowledge(message) == encode(Puback(5), V5)


def test_an_acknowledgement_of_a_lost_session_is_not_for_its_successor() -> None:
    bench = Bench(ClientPolicy(manual=True)).up()
    (old,) = bench.hear(Publish("t", b"old", 1, packet_id=5))
    bench.again(present=False)
    bench.hear(Publish("t", b"new", 1, packet_id=5))
    assert isinstance(old, Publish)
    assert bench.session.acknowledge(old) == b""


def test_topic_aliases_of_the_server_are_resolved() -> None:
    bench = Bench(ClientPolicy(alias_max=1)).up()
    alias = Properties(topic_alias=1)
    events = bench.hear(Publish("a", b"1", properties=alias), Publish("", b"2", properties=alias))
    assert [event.topic for event in events if isinstance(event, Publish)] == ["a", "a"]
    with pytest.raises(MqttError, match="has not been set"):
        bench.again().hear(Publish("", b"3", properties=alias))


def test_after_disconnect_nothing_more_is_sent() -> None:
    bench = Bench().up()
    bench.session.disconnect(expiry_s=0)
    bench.publish()
    bench.session.disconnect()
    assert bench.sent() == [Disconnect(properties=Properties(session_expiry_interval=0))]
    assert bench.sent() == []


def test_waiting_requests_can_be_forgotten() -> None:
    bench = Bench(ClientPolicy(queue_max=2))
    bench.session.subscribe(SubscribeRequest("f"))
    bench.publish("a")
    bench.publish("b")
    bench.session.requests.forget(lambda request: request.subject in "fa")
    bench.publish("c")
    assert bench.up().sent() == [Publish("b", b"x"), Publish("c", b"x")]


VIOLATIONS: dict[str, list[Packet]] = {
    "PUBACK for a packet that is not a QoS 1": [Puback(2)],
    "PUBREC for packet 1, which is not a QoS 2": [Pubrec(1)],
    "PUBCOMP without PUBREL": [Pubcomp(2)],
    "UNSUBACK for packet 3, which does not match the request": [Unsuback(3, (ReasonCode.SUCCESS,))],
    "SUBACK for packet 1, which does not match the request": [Suback(1, (ReasonCode.SUCCESS,))],
    "SUBACK has 2 reason codes for 1 topic filters": [Suback(3, (ReasonCode.SUCCESS,) * 2)],
    "packet identifier 9 is in use already": [
        Publish("t", qos=2, packet_id=9),
        Publish("t", b"x", qos=2, packet_id=9),
    ],
    "more than 2 unacknowledged": [Publish("t", qos=2, packet_id=number) for number in (7, 8, 9)],
    "AUTH is not expected": [Auth(ReasonCode.SUCCESS, Properties(authentication_method="m"))],
    "topic alias 4 is above": [Publish("t", properties=Properties(topic_alias=4))],
}


@pytest.mark.parametrize("what", VIOLATIONS)
def test_a_server_that_breaks_the_protocol_is_left(what: str) -> None:
    bench = Bench(ClientPolicy(receive_max=2)).up()
    bench.publish(qos=1)
    bench.publish(qos=2)
    bench.session.subscribe(SubscribeRequest("f"))
    bench.sent()
    with pytest.raises(MqttError, match=what):
        bench.hear(*VIOLATIONS[what])


def test_a_pubrel_for_what_was_not_acknowledged_breaks_the_protocol() -> None:
    bench = Bench(ClientPolicy(manual=True)).up()
    with pytest.raises(MqttError, match="which was not acknowledged"):
        bench.hear(Publish("t", qos=2, packet_id=9), Pubrel(9))


def test_answers_to_nothing_are_nothing() -> None:
    bench = Bench().up()
    nothing = (ReasonCode.SUCCESS,)
    assert bench.hear(Puback(1), Pubcomp(1), Suback(1, nothing), Unsuback(1, nothing), Pingresp()) == []
    bench.hear(Pubrec(1))
    assert bench.sent() == [Pubrel(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


def _packets() -> st.SearchStrategy[Packet]:
    ids, reasons = st.integers(1, 5), st.sampled_from((ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED))
    return st.one_of(
        st.builds(Connack, st.booleans()),
        st.builds(
            Publish,
            st.just("t"),
            st.binary(max_size=2),
            st.integers(1, 2),
            st.booleans(),
            st.booleans(),
            ids,
            st.builds(Properties, topic_alias=st.none() | st.integers(1, 3)),
        ),
        *(st.builds(make, ids, reasons) for make in (Puback, Pubrec)),
        *(st.builds(make, ids) for make in (Pubrel, Pubcomp)),
        *(st.builds(make, ids, st.lists(reasons, min_size=1, max_size=2).map(tuple)) for make in (Suback, Unsuback)),
        st.just(Pingresp()),
        st.builds(Disconnect),
    )


@given(
    st.lists(_packets().map(lambda packet: encode(packet, V5)) | st.binary(max_size=12), max_size=12),
    st.booleans(),
    st.integers(1, 60),
)
def test_hostile_servers_cause_nothing_but_protocol_errors(pieces: list[bytes], manual: bool, cut: int) -> None:
    bench = Bench(ClientPolicy(manual=manual, resubscribes=True, receive_max=3, alias_max=2, packet_size_max=500))
    for qos in (0, 1, 2, 2):
        bench.publish(qos=qos)
    bench.session.subscribe(SubscribeRequest("f"))
    bench.session.ping()
    for _ in range(2):
        bench.session.open(0.0)
        data = encode(Connack(), V5) + b"".join(pieces)
        try:
            for start in range(0, len(data), cut):
                bench.session.receive(data[start : start + cut], 1.0)
                bench.session.take_bytes(1.0)
                for event in bench.session.take_events():
                    if isinstance(event, Publish | Repeated):
                        bench.session.acknowledge(event)
        except ProtocolError as error:
            bench.session.farewell(error)
        bench.session.close()
    assert len(bench.session.receipts) <= 6


def test_a_whole_life_at_a_server() -> None:
    pipe = Pipe(ClientSession(CONNECT), Server(Policy()))
    pipe.connect()
    pipe.client.subscribe(SubscribeRequest("t", 2))
    pipe.settle()
    for qos in (0, 1, 2):
        pipe.client.publish(Publish("up", b"%d" % qos, qos), 0.0)
        pipe.server.deliver(b"%d" % qos, qos)
    pipe.settle()
    assert pipe.server.routed == [b"0", b"1", b"2"]
    assert [event.payload for event in pipe.events if isinstance(event, Publish)] == [b"0", b"1", b"2"]
    assert len(pipe.client.requests) == len(pipe.client.receipts) == pipe.server.session.pending == 0
