"""Wills: at once, later, or never."""

from geomq.mqtt.codec.packets import Disconnect, Will
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.wills import due_will

WILL = Will("w", b"gone", 1, True, Properties(will_delay_interval=30, message_expiry_interval=5))


def test_a_normal_disconnect_cancels_the_will() -> None:
    assert due_will(WILL, Disconnect(), session_expires_at=None, now=0) is None
    assert due_will(None, None, session_expires_at=None, now=0) is None


def test_a_lost_connection_publishes_the_will_after_its_delay() -> None:
    due = due_will(WILL, None, session_expires_at=None, now=100)
    assert due is not None
    assert due.due_at == 130
    message = due.message(130)
    assert (message.topic, message.payload, message.qos, message.retain) == ("w", b"gone", 1, True)
    assert message.expires_at == 135
    assert message.properties.will_delay_interval is None


def test_disconnect_with_will_publishes_it() -> None:
    farewell = Disconnect(ReasonCode.DISCONNECT_WITH_WILL)
    due = due_will(Will("w"), farewell, session_expires_at=None, now=7)
    assert due is not None
    assert due.due_at == 7
    assert due.message(7).expires_at is None


def test_the_end_of_the_session_is_the_latest_moment() -> None:
    due = due_will(WILL, None, session_expires_at=110, now=100)
    assert due is not None
    assert due.due_at == 110
