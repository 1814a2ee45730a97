"""One network connection of a client session on an asyncio loop: bytes, deadlines, and what the socket can take.

What is asked of the session in one turn of the loop leaves in one write. `ended` is done, with the reason, when the
connection is over; the session has been told by then.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, cast

from geomq.errors import ProtocolError
from geomq.mqtt.client.events import Connected, ConnectRefused, Ended, Event, words
from geomq.mqtt.client.session import ClientSession
from geomq.transport.address import Address

if TYPE_CHECKING:
    from geomq.transport.websocket import WebSocketClient

UNSENT_BYTES_MAX: Final = 1 << 20
UNREAD_ANSWERS_MAX: Final = 100_000
"""A server that takes nothing but goes on sending what wants an answer is left."""

Trouble = Literal["broken", "late"]
"""What the broker sent breaks the protocol, or it did not answer in time."""


class Channel(asyncio.Protocol):
    """Created for every connection. `handle` is called with each event of the session."""

    def __init__(self, session: ClientSession, address: Address, handle: Callable[[Event], None]) -> None:
        self.session = session
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.said: ConnectRefused | Ended | None = None
        """The broker's own word on why the connection ended."""
        self.trouble: Trouble | None = None
        """What was wrong with the broker, if it ended for that."""
        self.welcomed = False
        self._address = address
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._websocket: WebSocketClient | None = None
        self._reason = "the connection was lost"
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._paused = False
        self._answers: list[bytes] = []

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = writer = cast(asyncio.Transport, transport)
        writer.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        if self._address.path is not None:
            from geomq.transport.websocket import WebSocketClient

            self._websocket = WebSocketClient(self._address, size_max=self.session.policy.packet_size_max)
            writer.write(self._websocket.take_bytes())
        self.session.open(self._loop.time())
        self._set_timer()
        self.flush()

    def data_received(self, data: bytes) -> None:
        try:
            if self._websocket is not None:
                data = self._unframed(data)
            if data:
                self.session.receive(data, self._loop.time())
        except ProtocolError as error:
            self._pass_events()
            self._leave(error)
            return
        self._pass_events()
        self.flush_soon()

    def _unframed(self, data: bytes) -> bytes:
        websocket, transport = self._websocket, self._transport
        assert websocket is not None
        data = websocket.receive(data)
        answer = websocket.take_bytes()
        if answer and transport is not None:
            transport.write(answer)
        return data

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._answers.clear()
        self.session.close()
        self._pass_events()
        if not self.ended.done():
            self.ended.set_result(self._reason)

    # Called by the owner.

    @property
    def paused(self) -> bool:
        """Whether the network takes nothing more for now."""
        return self._paused

    def send(self, data: bytes) -> None:
        """Send the acknowledgement of a message, which is for this connection only."""
        if data and self._transport is not None:
            self._answers.append(data)
            self.flush_soon()

    def flush_soon(self) -> None:
        """Write at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what the session has to send, if the network takes it."""
        self._scheduled = False
        transport = self._transport
        if transport is None or (self._websocket is not None and not self._websocket.open):
            return
        if self._paused:
            if len(self._answers) + self.session.unsent > UNREAD_ANSWERS_MAX:
                self.close("the broker stopped reading")
            return
        data = self.session.take_bytes(self._loop.time())
        if self._answers:
            data = b"".join((data, *self._answers))
            self._answers.clear()
        if data:
            self._write(transport, data)
        self._pass_events()

    def close(self, reason: str, *, politely: bool = False) -> None:
        """End the connection; what was written before still goes out if `politely`."""
        transport = self._transport
        if transport is None:
            return
        self._reason = reason
        if politely:
            self.flush()
            transport.close()
        else:
            transport.abort()

    def _write(self, transport: asyncio.Transport, data: bytes) -> None:
        if self._websocket is not None:
            self._websocket.send(data)
            data = self._websocket.take_bytes()
        transport.write(data)

    def _pass_events(self) -> None:
        while events := self.session.take_events():
            for event in events:
                if isinstance(event, Connected):
                    self.welcomed = True
                    self._set_timer()
                elif isinstance(event, ConnectRefused):
                    self.said = event
                    self.close(f"the broker refused to connect: {words(event.reason, event.properties)}")
                elif isinstance(event, Ended):
                    self.said = event
                    self.close(f"the broker disconnected: {words(event.reason, event.properties)}")
                self._handle(event)

    def _leave(self, error: ProtocolError) -> None:
        self.trouble = "broken"
        farewell = self.session.farewell(error)
        if farewell and self._transport is not None and not self._paused:
            self._write(self._transport, farewell)
            self.close(str(error), politely=True)
        else:
            self.close(str(error))

    # Deadlines.

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.session.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        try:
            self.session.on_deadline(self._loop.time())
        except ProtocolError as error:
            self.trouble = "late"
            self.close(str(error))
            return
        self.flush()
        self._set_timer()
