"""The client's end of a WebSocket, against the server's end of the same library."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from geomq.errors import ProtocolError
from geomq.transport.address import Address
from geomq.transport.websocket import WebSocketClient


def joined(**options: Any) -> tuple[WebSocketClient, ServerProtocol]:
    """Both ends after the handshake."""
    client = WebSocketClient(Address("::1", 9001, path="/mqtt"), size_max=1_000)
    server = ServerProtocol(subprotocols=[Subprotocol("mqtt")], **options)
    server.receive_data(client.take_bytes())
    (request,) = server.events_received()
    assert isinstance(request, Request)
    assert (request.path, request.headers["Host"]) == ("/mqtt", "[::1]:9001")
    assert not client.open
    server.send_response(server.accept(request))
    assert client.receive(b"".join(server.data_to_send())) == b""
    assert client.open
    return client, server


def test_bytes_go_both_ways_whatever_the_frames() -> None:
    client, server = joined()
    client.send(b"abc")
    server.receive_data(client.take_bytes())
    (frame,) = server.events_received()
    assert bytes(frame.data) == b"abc"  # type: ignore[union-attr]
    server.send_binary(b"de", fin=False)
    server.send_ping(b"?")
    server.send_continuation(b"f", fin=True)
    assert client.receive(b"".join(server.data_to_send())) == b"def"
    server.receive_data(client.take_bytes())
    assert [frame.opcode.name for frame in server.events_received()] == ["PONG"]  # type: ignore[union-attr]


def test_text_and_what_is_too_large_are_refused() -> None:
    client, server = joined()
    server.send_text(b"x")
    with pytest.raises(ProtocolError, match="sent a text"):
        client.receive(b"".join(server.data_to_send()))
    client, server = joined()
    server.send_binary(bytes(1_001))
    with pytest.raises(ProtocolError, match="WebSocket error"):
        client.receive(b"".join(server.data_to_send()))


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_hostile_frames_cause_nothing_but_protocol_errors(pieces: list[bytes]) -> None:
    client, _ = joined()
    try:
        for piece in pieces:
            assert isinstance(client.receive(piece), bytes)
            client.take_bytes()
    except ProtocolError as error:
        assert str(error)  # noqa: PT017
