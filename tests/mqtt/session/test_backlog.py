"""What waits in all sessions is one number; that it is right whatever a session does, its state machine checks."""

from geomq.mqtt.session.backlog import Backlog
from geomq.mqtt.session.handshake import Policy
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.subscriptions import Terms


def test_sessions_share_a_backlog_and_take_what_is_theirs_with_them() -> None:
    backlog = Backlog()
    sessions = [Session(name, Policy(), backlog=backlog) for name in "ab"]
    message = ApplicationMessage("topic", b"payload", 1)
    for session in (*sessions, sessions[0]):
        session.deliver(Fanout(message, 0.0), Terms(1, False, ()))
    assert (backlog.messages, backlog.bytes) == (3, 3 * len("topicpayload"))
    sessions[0].close()
    sessions[0].close()
    assert (backlog.messages, backlog.bytes) == (1, len("topicpayload"))
