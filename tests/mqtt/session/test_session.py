"""The session, call by call."""

import sys

import pytest

from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.changes import DeliveryAdded, DeliveryReleased, DeliveryRemoved, Journal, ReceiptAdded
from geomq.mqtt.session.handshake import Policy, agree
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.outbound import InFlight, Phase
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.subscriptions import Terms

QOS0, QOS1, QOS2 = Terms(0, False, ()), Terms(1, False, ()), Terms(2, False, ())


def _session(connect: Connect, policy: Policy | None = None, journal: Journal | None = None) -> Session:
    policy = policy or Policy()
    session = Session(connect.client_id, policy, journal)
    assert session.attach(agree(connect, policy, spare_id="s"), connect.will, 0.0) == []
    return session


def _packets(*wires: bytes | None, version: int = V5) -> list[Packet]:
    return list(Decoder(Side.CLIENT, version=version).feed(b"".join(filter(None, wires))))


def _fan(topic: str = "t", payload: bytes = b"x", qos: int = 2, now: float = 0.0) -> Fanout:
    return Fanout(ApplicationMessage(topic, payload, qos), now)


def test_one_encoding_serves_all_qos_0_receivers() -> None:
    fanout = _fan()
    first, second = _session(Connect("a")), _session(Connect("b"))
    assert first.deliver(fanout, QOS0) is second.deliver(fanout, QOS0)


def test_a_received_packet_can_be_passed_on_as_it_came() -> None:
    fanout = _fan()
    fanout.preset(V5, 1, b"head", b"tail")
    assert _session(Connect("a")).deliver(fanout, QOS1) == b"head\0\1tail"


def test_versions_get_their_own_encoding() -> None:
    fanout = Fanout(ApplicationMessage("t", b"x", properties=Properties(content_type="c")), 0)
    assert _session(Connect("a", V311)).deliver(fanout, QOS0) == b"\x30\x04\x00\x01tx"
    assert _packets(_session(Connect("b")).deliver(fanout, QOS0)) == [
        Publish("t", b"x", properties=Properties(content_type="c"))
    ]


def test_what_expires_later_than_a_packet_can_say_expires_as_late_as_it_can() -> None:
    (sent,) = _packets(_session(Connect("a")).deliver(Fanout(ApplicationMessage("t", expires_at=1e18), 0), QOS0))
    assert isinstance(sent, Publish)
    assert sent.properties.message_expiry_interval == 0xFFFF_FFFF


def test_the_window_bounds_what_is_in_flight_and_acknowledgements_open_it() -> None:
    session = _session(Connect("c", properties=Properties(receive_maximum=2)))
    sent = [session.deliver(_fan(payload=b"%d" % number), QOS1) for number in range(4)]
    assert [bool(wire) for wire in sent] == [True, True, False, False]
    assert [packet.packet_id for packet in _packets(*sent) if isinstance(packet, Publish)] == [1, 2]
    (third,) = _packets(*session.on_puback(Puback(1), 0))
    assert third == Publish("t", b"2", 1, packet_id=3)
    assert session.on_puback(Puback(99), 0) == []
    assert session.pending == 3


def test_acknowledgements_that_come_together_open_the_window_together() -> None:
    session = _session(Connect("c", properties=Properties(receive_maximum=2)))
    assert not session.on_pubacks([1])
    for number in range(5):
        session.deliver(_fan(payload=b"%d" % number), QOS1)
    assert not session.on_pubacks([99])
    assert session.on_pubacks([1, 99, 2])
    sent = _packets(*session.pump(0))
    assert sent == [Publish("t", b"2", 1, packet_id=3), Publish("t", b"3", 1, packet_id=4)]
    assert session.pending == 3


def test_a_full_queue_drops_the_newest_and_counts() -> None:
    policy = Policy(in_flight_max=1, queue_max=2)
    session = _session(Connect("c"), policy)
    for number in range(5):
        session.deliver(_fan(payload=b"%d" % number), QOS1)
    assert (session.pending, session.dropped) == (3, 2)
    payloads = []
    for packet_id in (1, 2, 3):
        for packet in _packets(*session.on_puback(Puback(packet_id), 0)):
            assert isinstance(packet, Publish)
            payloads.append(packet.payload)
    assert payloads == [b"1", b"2"]


def test_the_queue_is_bounded_in_bytes_too() -> None:
    session = _session(Connect("c"), Policy(in_flight_max=1, queue_bytes_max=3_000))
    for _ in range(5):
        session.deliver(_fan(payload=bytes(1_000)), QOS1)
    assert (session.pending, session.dropped) == (3, 2)


def test_qos_2_goes_through_all_four_steps() -> None:
    session = _session(Connect("c"))
    assert _packets(session.deliver(_fan(), QOS2)) == [Publish("t", b"x", 2, packet_id=1)]
    assert _packets(*session.on_pubrec(Pubrec(1), 0)) == [Pubrel(1)]
    assert _packets(*session.on_pubrec(Pubrec(1), 0)) == [Pubrel(1)]
    assert session.on_pubcomp(Pubcomp(1), 0) == []
    assert session.pending == 0
    assert session.on_pubcomp(Pubcomp(1), 0) == []


def test_a_failed_pubrec_ends_the_message_without_pubrel() -> None:
    session = _session(Connect("c"), Policy(in_flight_max=1))
    session.deliver(_fan(payload=b"1"), QOS2)
    session.deliver(_fan(payload=b"2"), QOS2)
    (following,) = _packets(*session.on_pubrec(Pubrec(1, ReasonCode.QUOTA_EXCEEDED), 0))
    assert following == Publish("t", b"2", 2, packet_id=2)


@pytest.mark.parametrize("version", [V311, V5])
def test_an_unknown_pubrec_or_pubrel_is_answered_all_the_same(version: int) -> None:
    session = _session(Connect("c", version))
    reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else ReasonCode.SUCCESS
    assert _packets(*session.on_pubrec(Pubrec(9), 0), version=version) == [Pubrel(9, reason)]
    assert _packets(session.on_pubrel(Pubrel(9)), version=version) == [Pubcomp(9, reason)]
    assert session.on_pubcomp(Pubcomp(9), 0) == []


def test_answers_of_the_wrong_kind_break_the_protocol() -> None:
    session = _session(Connect("c"))
    session.deliver(_fan(), QOS2)
    session.deliver(_fan(), QOS1)
    with pytest.raises(ProtocolViolation):
        session.on_puback(Puback(1), 0)
    with pytest.raises(ProtocolViolation):
        session.on_pubcomp(Pubcomp(1), 0)
    with pytest.raises(ProtocolViolation):
        session.on_pubrec(Pubrec(2), 0)


def test_what_is_in_flight_is_repeated_in_order_before_anything_new() -> None:
    connect = Connect("c", clean_start=False, properties=Properties(session_expiry_interval=60))
    session = _session(connect, Policy(in_flight_max=3))
    for number, terms in enumerate((QOS1, QOS2, QOS2, QOS1)):
        session.deliver(_fan(payload=b"%d" % number), terms)
    session.on_pubrec(Pubrec(2), 0)
    session.detach(60, 5)
    assert session.expires_at == 65
    again = session.attach(agree(connect, Policy(), spare_id=""), None, 10)
    assert _packets(*again) == [
        Publish("t", b"0", 1, dup=True, packet_id=1),
        Publish("t", b"2", 2, dup=True, packet_id=3),
        Pubrel(2),
        Publish("t", b"3", 1, packet_id=4),
    ]


def test_repeats_keep_to_a_smaller_window() -> None:
    connect = Connect("c", properties=Properties(session_expiry_interval=60))
    session = _session(connect)
    for number in range(3):
        session.deliver(_fan(payload=b"%d" % number), QOS1)
    session.detach(60, 0)
    narrow = Connect("c", properties=Properties(session_expiry_interval=60, receive_maximum=1))
    (first,) = _packets(*session.attach(agree(narrow, Policy(), spare_id=""), None, 0))
    assert first == Publish("t", b"0", 1, dup=True, packet_id=1)
    assert session.deliver(_fan(payload=b"new"), QOS1) == b""
    (second,) = _packets(*session.on_puback(Puback(1), 0))
    assert second == Publish("t", b"1", 1, dup=True, packet_id=2)


def test_qos_0_messages_do_not_wait_for_an_absent_client() -> None:
    session = _session(Connect("c", properties=Properties(session_expiry_interval=60)))
    session.detach(60, 0)
    assert session.deliver(_fan(), QOS0) == b""
    assert session.pending == 0


def test_messages_expire_in_the_queue_and_count_down() -> None:
    session = _session(Connect("c", properties=Properties(session_expiry_interval=60)))
    session.detach(60, 0)
    for seconds in (10, 30):
        message = ApplicationMessage(
            "t", b"%d" % seconds, 1, False, Properties(message_expiry_interval=seconds), seconds
        )
        session.deliver(Fanout(message, 0), QOS1)
    connect = Connect("c", properties=Properties(session_expiry_interval=60))
    (only,) = _packets(*session.attach(agree(connect, Policy(), spare_id=""), None, 12.5))
    assert isinstance(only, Publish)
    assert (only.payload, only.properties.message_expiry_interval) == (b"30", 18)


def test_packets_too_large_for_the_client_are_left_out() -> None:
    session = _session(Connect("c", properties=Properties(maximum_packet_size=40)), Policy(in_flight_max=1))
    assert session.deliver(_fan(payload=bytes(50)), QOS0) == b""
    assert session.deliver(_fan(payload=bytes(50)), QOS1) == b""
    assert (session.pending, session.dropped) == (0, 2)
    session.deliver(_fan(payload=b"1"), QOS1)
    session.deliver(_fan(payload=bytes(50)), QOS1)
    session.deliver(_fan(payload=b"2"), QOS1)
    (following,) = _packets(*session.on_puback(Puback(2), 0))
    assert isinstance(following, Publish)
    assert following.payload == b"2"


def test_the_client_s_aliases_shorten_what_it_is_sent() -> None:
    session = _session(Connect("c", properties=Properties(topic_alias_maximum=1)))
    first, second = (session.deliver(_fan("long/topic"), QOS0) for _ in range(2))
    other = session.deliver(_fan("other"), QOS1)
    assert _packets(first, second, other) == [
        Publish("long/topic", b"x", properties=Properties(topic_alias=1)),
        Publish("", b"x", properties=Properties(topic_alias=1)),
        Publish("other", b"x", 1, packet_id=1),
    ]


def test_subscription_identifiers_reach_only_version_5() -> None:
    terms = Terms(1, True, (3, 4))
    assert _packets(_session(Connect("a")).deliver(_fan(), terms)) == [
        Publish("t", b"x", 1, True, packet_id=1, properties=Properties(subscription_identifiers=(3, 4)))
    ]
    old = _session(Connect("b", V311)).deliver(_fan(), terms)
    assert _packets(old, version=V311) == [Publish("t", b"x", 1, True, packet_id=1)]


def test_a_repeated_qos_2_publish_is_accepted_once() -> None:
    session = _session(Connect("c"))
    publish = Publish("t", b"x", 2, packet_id=5)
    assert session.accept(publish, 0) == ApplicationMessage("t", b"x", 2)
    assert session.accept(Publish("t", b"x", 2, dup=True, packet_id=5), 0) is None
    assert _packets(session.answer(5, 2)) == [Pubrec(5)]
    assert _packets(session.on_pubrel(Pubrel(5))) == [Pubcomp(5)]
    assert session.accept(publish, 0) is not None


def test_a_refused_qos_2_publish_may_be_tried_again() -> None:
    session = _session(Connect("c"))
    publish = Publish("t", b"x", 2, packet_id=5)
    session.accept(publish, 0)
    refused = session.answer(5, 2, ReasonCode.QUOTA_EXCEEDED, "disk full")
    assert _packets(refused) == [Pubrec(5, ReasonCode.QUOTA_EXCEEDED, Properties(reason_string="disk full"))]
    assert session.accept(publish, 0) is not None


def test_a_client_that_wants_no_explanations_gets_none() -> None:
    session = _session(Connect("c", properties=Properties(request_problem_information=0)))
    session.accept(Publish("t", b"x", 1, packet_id=5), 0)
    assert _packets(session.answer(5, 1, ReasonCode.NOT_AUTHORIZED, "no")) == [Puback(5, ReasonCode.NOT_AUTHORIZED)]


def test_too_many_open_messages_break_the_protocol_in_version_5_only() -> None:
    for version in (V311, V5):
        session = _session(Connect("c", version), Policy(receive_max=2))
        session.accept(Publish("t", b"", 1, packet_id=1), 0)
        session.accept(Publish("t", b"", 2, packet_id=2), 0)
        if version == V311:
            assert session.accept(Publish("t", b"", 1, packet_id=3), 0) is not None
            continue
        with pytest.raises(ProtocolViolation) as caught:
            session.accept(Publish("t", b"", 1, packet_id=3), 0)
        assert caught.value.reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
        session.answer(1, 1)
        assert session.accept(Publish("t", b"", 1, packet_id=3), 0) is not None


def test_aliases_from_the_client_are_resolved_and_not_passed_on() -> None:
    session = _session(Connect("c"))
    properties = Properties(topic_alias=3, content_type="c")
    named = session.accept(Publish("long", b"", properties=properties), 0)
    bare = session.accept(Publish("", b"", properties=properties), 0)
    assert named == bare == ApplicationMessage("long", b"", properties=Properties(content_type="c"))


def test_the_journal_tells_what_must_survive() -> None:
    journal: Journal = []
    session = _session(Connect("c", properties=Properties(session_expiry_interval=9)), journal=journal)
    session.deliver(_fan(), QOS2)
    session.on_pubrec(Pubrec(1), 0)
    session.on_pubcomp(Pubcomp(1), 0)
    session.accept(Publish("t", b"", 2, packet_id=8), 0)
    assert journal == [
        DeliveryAdded("c", 1, ApplicationMessage("t", b"x", 2), 2, False, (), 1),
        DeliveryReleased("c", 1, 1),
        DeliveryRemoved("c", 1),
        ReceiptAdded("c", 8),
    ]
    session.forget_journal()
    session.on_pubrel(Pubrel(8))
    session.deliver(_fan(), QOS1)
    assert len(journal) == 4
    assert not session.durable


def test_a_client_that_does_not_read_makes_messages_wait_although_its_window_is_open() -> None:
    session = _session(Connect("c", properties=Properties(receive_maximum=1_000)))
    assert session.deliver(_fan(payload=b"1"), QOS1)
    session.stall()
    assert session.deliver(_fan(payload=b"2"), QOS1) == b""
    assert session.on_puback(Puback(1), 0) == []
    (late,) = _packets(*session.go_on(0))
    assert late == Publish("t", b"2", 1, packet_id=2)
    idle = _session(Connect("d"))
    idle.stall()
    assert idle.deliver(_fan(), QOS1) == b""
    assert len(idle.go_on(0)) == 1


def test_an_idle_session_is_small() -> None:
    session = _session(Connect("c"))
    size = sys.getsizeof(session) + sys.getsizeof(session.subscriptions)
    assert size < 400


def test_what_is_restored_while_the_client_is_connected_is_sent_again_under_its_identifiers() -> None:
    session = _session(Connect("c", properties=Properties(receive_maximum=3)))
    waiting = ((40, Phase.RELEASED), (41, Phase.SENT), (0, Phase.QUEUED))
    deliveries = [
        InFlight(number, ApplicationMessage("t", b"%d" % number), 2, False, (), 1, packet_id, phase)
        for number, (packet_id, phase) in enumerate(waiting)
    ]
    session.restore(deliveries, [])
    pubrel, again, new = _packets(*session.pump(0.0))
    assert pubrel == Pubrel(40)
    assert again == Publish("t", b"1", 2, packet_id=41, dup=True)
    assert new == Publish("t", b"2", 2, packet_id=42)
