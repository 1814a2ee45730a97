"""What clients are told at the end, before and after they were let in."""

from geomq.broker.connections.farewell import TEXT_MAX, farewell
from geomq.mqtt.codec.packets import Connack, Disconnect
from geomq.mqtt.codec.properties import NO_PROPERTIES
from geomq.mqtt.codec.reasons import ReasonCode


def test_a_client_is_told_why_and_where_to_go() -> None:
    told = farewell(ReasonCode.USE_ANOTHER_SERVER, "x" * 2 * TEXT_MAX, "there:1883", admitted=True)
    assert isinstance(told, Disconnect)
    assert told.properties.reason_string == "x" * TEXT_MAX
    assert told.properties.server_reference == "there:1883"


def test_one_that_was_not_let_in_gets_a_connack() -> None:
    assert farewell(ReasonCode.NOT_AUTHORIZED, None, None, admitted=False) == Connack(
        False, ReasonCode.NOT_AUTHORIZED, NO_PROPERTIES
    )
