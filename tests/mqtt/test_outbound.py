"""Packet identifiers of the sending half."""

from geomq.mqtt.message import Message
from geomq.mqtt.outbound import PACKET_ID_MAX, Outbound


def test_identifiers_wrap_around_and_skip_those_in_flight() -> None:
    outbound = Outbound("c", queue_max=10, bytes_max=10_000)
    outbound.connect(3)
    stuck = outbound.push(Message("t"), 1)
    assert stuck is not None
    assert stuck.packet_id == 1
    last = 0
    for _ in range(PACKET_ID_MAX):
        delivery = outbound.push(Message("t"), 1)
        assert delivery is not None
        assert delivery.packet_id != stuck.packet_id
        last = delivery.packet_id
        outbound.acknowledge(last)
    assert last == 2


def test_expired_messages_leave_the_queue_counted() -> None:
    outbound = Outbound("c", queue_max=10, bytes_max=10_000)
    for expires_at in (1.0, 9.0):
        outbound.push(Message("t", expires_at=expires_at), 1)
    outbound.connect(5)
    assert [step.delivery.message.expires_at for step in outbound.pump(5.0)] == [9.0]
    assert (outbound.expired, outbound.queued, outbound.in_flight) == (1, 0, 1)
