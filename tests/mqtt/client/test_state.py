"""A session that was saved goes on as it was, and bytes that are no session are refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import ProtocolError
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.state import restore, save
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Packet,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

CONNECT = Connect("", properties=Properties(session_expiry_interval=60))
POLICY = ClientPolicy(resubscribes=True)


def lived() -> ClientSession:
    """A session with something of everything."""
    session = ClientSession(CONNECT, POLICY)
    session.open(0.0)
    session.receive(encode(Connack(properties=Properties(assigned_client_identifier="given")), V5), 0.0)
    session.subscribe(SubscribeRequest("kept", 2), properties=Properties(user_properties=(("geo-fence", "x"),)))
    session.publish(Publish("a", b"1", 1), 0.0)
    session.publish(Publish("b", b"2", 2), 0.0)
    session.take_bytes(0.0)
    session.receive(encode(Suback(1, (ReasonCode.GRANTED_QOS_2,)), V5) + encode(Pubrec(3), V5), 0.0)
    session.receive(encode(Publish("in", b"", 2, packet_id=9), V5), 0.0)
    session.subscribe(SubscribeRequest("new"))
    session.take_bytes(0.0)
    session.publish(Publish("c", b"3", 0, properties=Properties(message_expiry_interval=10)), 1.0)
    session.unsubscribe("old")
    session.ping()
    return session


def test_a_saved_session_goes_on_where_it_was() -> None:
    session = ClientSession(CONNECT, POLICY)
    restore(session, save(lived(), 2.0), 50.0)
    assert (session.client_id, session.known) == ("given", True)
    session.open(52.0)
    (connect,) = Decoder(Side.SERVER).feed(session.take_bytes(52.0))
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.clean_start) == ("given", False)
    session.receive(encode(Connack(True), V5), 52.0)
    sent: list[Packet] = list(Decoder(Side.SERVER, version=V5).feed(session.take_bytes(52.0)))
    assert sent == [
        Publish("a", b"1", 1, dup=True, packet_id=2),
        Pubrel(3),
        Subscribe(1, (SubscribeRequest("new"),)),
        Publish("c", b"3", properties=Properties(message_expiry_interval=7)),
        Unsubscribe(4, ("old",)),
    ]
    session.take_events()
    session.receive(encode(Publish("in", b"", 2, dup=True, packet_id=9), V5), 52.0)
    assert session.take_events() == []


def test_a_saved_session_subscribes_again_if_the_server_lost_it() -> None:
    session = ClientSession(CONNECT, POLICY)
    restore(session, save(lived(), 2.0), 2.0)
    session.open(2.0)
    session.take_bytes(2.0)
    session.receive(encode(Connack(), V5), 2.0)
    (first, *_) = Decoder(Side.SERVER, version=V5).feed(session.take_bytes(2.0))
    assert isinstance(first, Subscribe)
    assert (first.requests[0].topic_filter, first.properties.user("geo-fence")) == ("kept", "x")


def test_bytes_of_another_form_are_refused() -> None:
    state = bytearray(save(lived(), 0.0))
    state[1] = 2
    with pytest.raises(ProtocolError, match="has format 2; only format 1 can be read"):
        restore(ClientSession(CONNECT), bytes(state), 0.0)


@given(st.binary(max_size=50))
def test_bytes_that_are_no_state_are_refused(state: bytes) -> None:
    with pytest.raises(ProtocolError):
        restore(ClientSession(CONNECT), state, 0.0)


@given(st.data())
def test_damaged_bytes_are_refused_or_make_a_session_that_can_go_on(data: st.DataObject) -> None:
    state = bytearray(save(lived(), 0.0))
    for _ in range(data.draw(st.integers(1, 3))):
        state[data.draw(st.integers(0, len(state) - 1))] = data.draw(st.integers(0, 255))
    session = ClientSession(CONNECT)
    try:
        restore(session, bytes(state), 0.0)
    except ProtocolError:
        return
    session.open(0.0)
    assert session.take_bytes(0.0)[:1] == b"\x10"
    session.receive(encode(Connack(session.known), V5), 0.0)
    session.take_bytes(0.0)
