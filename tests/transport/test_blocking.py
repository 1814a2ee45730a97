"""Sessions on blocking sockets: connections that break, servers that are silent, and what is left for the caller."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.client.test_client_page import broker_port

from geomq.errors import ProtocolError
from geomq.mqtt.client.events import Acknowledged, Ended
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect, Packet, Publish, Suback, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.transport.address import Address
from geomq.transport.blocking import BlockingLink, RefusedByBroker

CONNECT = Connect("c", clean_start=False, properties=Properties(session_expiry_interval=60))


def link(port: int, policy: ClientPolicy | None = None) -> BlockingLink:
    return BlockingLink(ClientSession(CONNECT, policy or ClientPolicy(answer_s=1.0)), Address("127.0.0.1", port))


@contextmanager
def server(*answers: tuple[Packet, ...] | bytes) -> Iterator[int]:
    """Answers what arrives on one connection, one time after the other, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                for answer in answers:
                    accepted.recv(4096)
                    data = answer if isinstance(answer, bytes) else b"".join(encode(one, V5) for one in answer)
                    accepted.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def until(link: BlockingLink, done: Callable[[], bool]) -> None:
    for _ in range(100):
        if done():
            return
        link.step(0.1)
    raise AssertionError("it does not come to that")


def test_what_was_not_acknowledged_goes_out_on_the_next_connection() -> None:
    with broker_port() as port:
        reader, writer = link(port), link(port)
        writer.session.client_id = "w"
        reader.connect()
        reader.ask(reader.session.subscribe(SubscribeRequest("t", 2)))
        writer.connect()
        for number in range(100):
            writer.session.publish(Publish("t", b"%d" % number, 2), 0.0)
            if number % 30 == 20:
                writer.flush()
                writer.connect()
        until(writer, lambda: not len(writer.session.requests))
        got: list[bytes] = []
        while len(got) < 100:
            got += [event.payload for event in reader.step(1.0) if isinstance(event, Publish)]
        assert got == [b"%d" % number for number in range(100)]
        for one in (reader, writer):
            one.close()


def test_a_refusal_says_why() -> None:
    refusal = Connack(False, ReasonCode.BANNED, Properties(reason_string="no devices"))
    with server((refusal,)) as port, pytest.raises(RefusedByBroker, match=r"connection: banned \(no devices\)$"):
        link(port).connect()


def test_a_silent_server_is_not_waited_for() -> None:
    with server(b"\x20") as port, pytest.raises(OSError):
        link(port, ClientPolicy(answer_s=0.2)).connect()
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(TimeoutError, match="does not answer"):
        link(listening.getsockname()[1], ClientPolicy(answer_s=0.2)).connect()


def test_bytes_behind_an_answer_are_for_whoever_reads_next() -> None:
    behind = Publish("t", b"x", 1, packet_id=1)
    with server((Connack(),), (Suback(1, (ReasonCode.GRANTED_QOS_1,)), behind)) as port:
        one = link(port)
        assert not one.connect().connack.session_present
        answer = one.ask(one.session.subscribe(SubscribeRequest("t", 1)))
        assert isinstance(answer, Acknowledged)
        assert one.receive(1.0) == encode(behind, V5)
        with pytest.raises(ConnectionResetError, match="closed the connection"):
            one.receive(1.0)
        one.close()


def test_what_comes_instead_of_an_answer_ends_the_connection() -> None:
    with server((Connack(),), (Publish("t"),)) as port:
        one = link(port)
        one.connect()
        with pytest.raises(ProtocolError, match="sent Publish before its answer"):
            one.ask(one.session.subscribe(SubscribeRequest("t")))
        one.close()
    with server((Connack(),), (Disconnect(ReasonCode.SERVER_BUSY),)) as port:
        one = link(port)
        one.connect()
        with pytest.raises(ConnectionResetError, match="closed the connection: server busy"):
            one.ask(one.session.subscribe(SubscribeRequest("t")))
        one.close()


def test_a_disconnect_is_reported_after_what_came_before() -> None:
    with server((Connack(),), (Publish("t", b"last"), Disconnect(ReasonCode.SERVER_SHUTTING_DOWN))) as port:
        one = link(port)
        one.connect()
        one.session.publish(Publish("up"), 0.0)
        one.flush()
        events = one.step(1.0)
        assert [type(event) for event in events if not isinstance(event, Acknowledged)] == [Publish, Ended]
        one.close()


def test_another_socket_wakes_it_up() -> None:
    wake, woken = socket.socketpair()
    with server((Connack(),), b"") as port:
        one = link(port)
        one.connect()
        one.watch(woken)
        wake.send(b".")
        assert one.receive(5.0) is None
        one.send(b"\xc0\0")
        one.close()
    wake.close()
    woken.close()
