"""The blocking connection: framing, the handshake, and refusals in one line."""

import socket
import threading
from collections.abc import Iterator

import pytest

from geomq.errors import ProtocolError
from geomq.mqtt.encode import encode
from geomq.mqtt.packets import Connack, Suback
from geomq.mqtt.properties import Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5
from geomq.pipeline.streaming.connection import Connection, Refused, packet_end
from geomq.pipeline.streaming.options import Address, Login


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answer(server: socket.socket, data: bytes) -> threading.Thread:
    """Accept one connection, answer its first bytes, close."""

    def serve() -> None:
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def dial(server: socket.socket) -> Connection:
    address = Address("127.0.0.1", server.getsockname()[1], False)
    return Connection.open(address, Login(), "client", clean=True, keep_alive_s=10)


def test_what_follows_the_handshake_is_kept(listener: socket.socket) -> None:
    told = Properties(user_properties=(("geo-details", "event time"), ("geo-waiting", "12")))
    thread = answer(listener, encode(Connack(True, properties=told), V5) + b"\xd0\0")
    connection = dial(listener)
    thread.join()
    assert connection.connack.session_present
    assert connection.details == ("event", "time")
    assert connection.waiting == 12
    assert connection.rest == b"\xd0\0"
    with pytest.raises(ConnectionError):
        connection.receive(1.0)
    connection.close()


def test_a_refusal_says_why(listener: socket.socket) -> None:
    refusal = Connack(False, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="a user name is needed"))
    thread = answer(listener, encode(refusal, V5))
    with pytest.raises(Refused, match=r"refuses the connection: not authorized \(a user name is needed\)"):
        dial(listener)
    thread.join()


@pytest.mark.parametrize(
    "data", [encode(Suback(1, (ReasonCode.SUCCESS,)), V5), b"\x20\xff\xff\xff\xff\xff", b"HTTP/1.1 "]
)
def test_what_is_no_broker_is_a_protocol_error(listener: socket.socket, data: bytes) -> None:
    thread = answer(listener, data)
    with pytest.raises((ProtocolError, OSError)):
        dial(listener)
    thread.join()


@pytest.mark.parametrize(
    ("data", "end"), [(b"\x30", None), (b"\x30\x05", 7), (b"\x30\x80", None), (b"\x30\x80\x01", 131)]
)
def test_the_end_of_a_packet_is_known_from_its_head(data: bytes, end: int | None) -> None:
    assert packet_end(data) == end


def test_a_packet_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError, match="larger than"):
        packet_end(b"\x30\xff\xff\xff\x7f")
    with pytest.raises(ProtocolError, match="four bytes"):
        packet_end(b"\x30\xff\xff\xff\xff\x01")
