"""Packet identifiers of the sending half."""

from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.session.changes import DeliveryAdded, Journal
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.outbound import PACKET_ID_MAX, InFlight, Outbound, Phase


def test_identifiers_wrap_around_and_skip_those_in_flight() -> None:
    outbound = Outbound("c", queue_max=10, bytes_max=10_000)
    outbound.connect(3)
    stuck = outbound.push(ApplicationMessage("t"), 1)
    assert stuck is not None
    assert stuck.packet_id == 1
    last = 0
    for _ in range(PACKET_ID_MAX):
        delivery = outbound.push(ApplicationMessage("t"), 1)
        assert delivery is not None
        assert delivery.packet_id != stuck.packet_id
        last = delivery.packet_id
        outbound.acknowledge((last,))
    assert last == 2


def test_expired_messages_leave_the_queue_counted() -> None:
    outbound = Outbound("c", queue_max=10, bytes_max=10_000)
    for expires_at in (1.0, 9.0):
        outbound.push(ApplicationMessage("t", expires_at=expires_at), 1)
    outbound.connect(5)
    assert [step.delivery.message.expires_at for step in outbound.pump(5.0)] == [9.0]
    assert (outbound.expired, len(outbound), outbound.waiting) == (1, 1, False)


def test_what_another_session_sent_is_sent_as_once_more_within_the_window() -> None:
    outbound = Outbound("c", queue_max=10, bytes_max=1_000, journal=[])
    outbound.connect(2)
    outbound.push(ApplicationMessage("t", b"new"), 2)
    for payload in (b"1", b"2"):
        assert outbound.adopt(InFlight(9, ApplicationMessage("t", payload), 2, retain=False, identifiers=(), size=2))
    assert [(step.delivery.message.payload, step.again) for step in outbound.pump(0.0)] == [(b"1", True)]
    later = outbound.push(ApplicationMessage("t", b"later"), 2)
    assert later is not None
    assert later.phase is Phase.QUEUED
    for packet_id in (1, 2):
        outbound.receive(packet_id, failed=False)
        outbound.complete(packet_id)
    steps = [(step.delivery.message.payload, step.again) for step in outbound.pump(0.0)]
    assert steps == [(b"2", True), (b"later", False)]


def test_what_another_session_sent_waits_for_the_client() -> None:
    journal: Journal = []
    outbound = Outbound("c", queue_max=10, bytes_max=1_000, journal=journal)
    assert outbound.adopt(InFlight(9, ApplicationMessage("t", b"1"), 2, retain=True, identifiers=(3,), size=2))
    assert outbound.pump(0.0) == []
    assert journal == [DeliveryAdded("c", 1, ApplicationMessage("t", b"1"), 2, True, (3,), 1)]
    outbound.connect(5)
    assert [(step.delivery.packet_id, step.again) for step in outbound.pump(0.0)] == [(1, True)]


def test_receipts_that_are_never_completed_use_up_the_identifiers_and_nothing_else() -> None:
    outbound = Outbound("c", queue_max=1, bytes_max=1 << 30)
    outbound.connect(PACKET_ID_MAX)
    for _ in range(PACKET_ID_MAX):
        delivery = outbound.push(ApplicationMessage("t"), 2)
        assert delivery is not None
        assert outbound.receive(delivery.packet_id, failed=False)
    outbound.disconnect()
    outbound.connect(PACKET_ID_MAX)
    assert len(outbound.pump(0.0)) == PACKET_ID_MAX
    waits = outbound.push(ApplicationMessage("t", b"waits"), 2)
    assert waits is not None
    assert waits.phase is Phase.QUEUED
    assert (outbound.waiting, outbound.pump(0.0)) == (True, [])
    assert outbound.complete(7)
    assert [(step.delivery.packet_id, step.again) for step in outbound.pump(0.0)] == [(7, False)]


def test_what_is_never_acknowledged_is_bounded_in_bytes_too_whatever_the_window() -> None:
    outbound = Outbound("c", queue_max=100, bytes_max=10_000)
    outbound.connect(PACKET_ID_MAX)
    pushed = [outbound.push(ApplicationMessage("t", bytes(3_000)), 1) for _ in range(9)]
    in_flight = [each for each in outbound.unfinished() if each.packet_id]
    assert (len(in_flight), len(outbound), pushed[7:]) == (4, 7, [None, None])
    assert outbound.acknowledge((1,))
    assert [step.delivery.packet_id for step in outbound.pump(0.0)] == [5]
    outbound.disconnect()
    outbound.connect(PACKET_ID_MAX)
    assert [step.again for step in outbound.pump(0.0)] == [True] * 4


def test_properties_take_room_in_the_queue() -> None:
    outbound = Outbound("c", queue_max=100, bytes_max=10_000)
    for properties in (
        Properties(user_properties=(("", ""),) * 50),
        Properties(user_properties=(("name", "v" * 5_000),)),
        Properties(correlation_data=bytes(5_000)),
    ):
        pushed = [outbound.push(ApplicationMessage("t", properties=properties), 1) for _ in range(3)]
        assert (len(outbound), pushed[1:]) == (1, [None, None])
        outbound.connect(1)
        assert len(outbound.pump(0.0)) == 1
        assert outbound.acknowledge((outbound.unfinished()[0].packet_id,))
        outbound.disconnect()
        assert outbound.pending_bytes == 0


def test_identifiers_come_from_those_of_the_broker_and_what_another_broker_sent_keeps_its_own() -> None:
    outbound = Outbound("c", queue_max=10, bytes_max=10_000, packet_ids=range(5, 8))
    outbound.restore(InFlight(1, ApplicationMessage("t"), 2, False, (), 1, packet_id=2, phase=Phase.RELEASED))
    outbound.connect(10)
    sent = [outbound.push(ApplicationMessage("t"), 1) for _ in range(2)]
    assert [step.delivery.packet_id for step in outbound.pump(0.0)] == [2, 5, 6]
    assert [each and each.phase for each in sent] == [Phase.SENT, Phase.SENT]
    outbound.complete(2)
    outbound.acknowledge((5,))
    sent = [outbound.push(ApplicationMessage("t"), 1) for _ in range(2)]
    assert [each and each.packet_id for each in sent] == [7, 5]


def test_what_goes_beyond_the_end_is_taken_in_order_and_fits_once_so_much_before_it_has_gone() -> None:
    outbound = Outbound("c", queue_max=2, bytes_max=1_000)
    payloads = [b"%d" % number for number in range(6)]
    for number, payload in enumerate(payloads):
        taken = outbound.push(ApplicationMessage("t", payload), 1, beyond=number >= 2)
        assert taken is not None
        assert outbound.overfull == (number >= 3)
    assert not outbound.fits(0, 0)
    assert [outbound.fits(beyond, 0) for beyond in (3, 4, 5)] == [False, False, True]
    outbound.connect(1)
    for payload in payloads:
        assert [step.delivery.message.payload for step in outbound.pump(0.0)] == [payload]
        assert outbound.acknowledge((outbound.unfinished()[0].packet_id,))
    outbound.push(ApplicationMessage("t", bytes(1_000)), 1)
    assert outbound.fits(0, 0)


def test_a_queue_that_is_over_has_room_for_everything() -> None:
    outbound = Outbound("c", queue_max=1, bytes_max=1_000)
    outbound.push(ApplicationMessage("t"), 1)
    assert not outbound.fits(0, 0)
    outbound.close()
    assert outbound.fits(0, 0)


def test_room_is_made_by_giving_up_the_oldest_that_may_go() -> None:
    outbound = Outbound("c", queue_max=3, bytes_max=1_000)

    def gives_up(size: int, but: str = "") -> tuple[list[str], bool]:
        gone, enough = outbound.make_room(size, lambda each: each.topic != but)
        return [each.message.topic for each in gone], enough

    for topic in ("keep", "go", "go/on"):
        outbound.push(ApplicationMessage(topic, bytes(200)), 1)
    assert not outbound.has_room(10)
    assert gives_up(10, but="keep") == (["go"], True)
    assert outbound.has_room(10)
    assert gives_up(2_000) == ([], False), "it would not fit whatever went"
    assert gives_up(900, but="keep") == (["go/on"], False)
    assert [each.message.topic for each in outbound.unfinished()] == ["keep"]


def test_what_goes_makes_room_for_as_much_in_a_queue_that_is_longer_than_it_should_be() -> None:
    outbound = Outbound("c", queue_max=1, bytes_max=1_000)
    for number in range(3):
        outbound.push(ApplicationMessage("t", b"%d" % number), 1, beyond=True)
    gone, enough = outbound.make_room(2, lambda _: True)
    assert ([each.message.payload for each in gone], enough) == ([b"0"], True)
