"""How the source and the sink connect: the handshake, and refusals in one line."""

import socket
import threading
from collections.abc import Iterator

import pytest

from geomq.errors import ProtocolError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Suback
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.pipeline.streaming.connection import Connection, RefusedForGood
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
    return Connection.open(address, Login(), "client", clean=False, keep_alive_s=10)


def test_what_follows_the_handshake_is_kept(listener: socket.socket) -> None:
    said = Properties(user_properties=(("geo-details", "event time"), ("geo-waiting", "12")))
    thread = answer(listener, encode(Connack(True, properties=said), V5) + b"\xd0\0")
    connection = dial(listener)
    thread.join()
    assert connection.connack.session_present
    assert connection.details == ("event", "time")
    assert connection.waiting == 12
    assert connection.link.receive(1.0) == b"\xd0\0"
    with pytest.raises(ConnectionError):
        connection.link.receive(1.0)
    connection.close()


def test_a_refusal_says_why(listener: socket.socket) -> None:
    refusal = Connack(False, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="a user name is required"))
    thread = answer(listener, encode(refusal, V5))
    with pytest.raises(RefusedForGood, match=r"refused the connection: not authorized \(a user name is required\)"):
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
