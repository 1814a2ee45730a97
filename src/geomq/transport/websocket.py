"""MQTT over WebSocket as a client: the handshake, MQTT bytes into frames, frames into MQTT bytes. No socket.

The protocol is that of the `websockets` library.
"""

from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from geomq.errors import ProtocolError
from geomq.transport.address import Address

SUBPROTOCOL: Final = Subprotocol("mqtt")


class WebSocketClient:
    """One WebSocket: `out` is what to write since it was last taken, handshake and control frames included."""

    def __init__(self, address: Address, *, size_max: int) -> None:
        scheme = "wss" if address.tls else "ws"
        host = f"[{address.host}]" if ":" in address.host else address.host
        uri = parse_uri(f"{scheme}://{host}:{address.port}{address.path}")
        self._protocol = ClientProtocol(uri, subprotocols=[SUBPROTOCOL], max_size=size_max)
        self._protocol.send_request(self._protocol.connect())

    @property
    def open(self) -> bool:
        """Whether the handshake is over."""
        return self._protocol.state is State.OPEN

    def take_bytes(self) -> bytes:
        """What to write now."""
        return b"".join(self._protocol.data_to_send())

    def send(self, data: bytes) -> None:
        self._protocol.send_binary(data)

    def receive(self, data: bytes) -> bytes:
        """The MQTT bytes in what arrived; ProtocolError if the server is no WebSocket or has closed it."""
        protocol = self._protocol
        protocol.receive_data(data)
        if protocol.handshake_exc is not None:
            raise ProtocolError(f"WebSocket handshake failed: {_line(protocol.handshake_exc)}")
        found: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Response):
                continue
            assert isinstance(event, Frame)
            if event.opcode is Opcode.TEXT:
                raise ProtocolError("the broker sent a text frame over the WebSocket")
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                found.append(bytes(event.data))
        if protocol.parser_exc is not None:
            raise ProtocolError(f"WebSocket error: {_line(protocol.parser_exc)}")
        return b"".join(found)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
