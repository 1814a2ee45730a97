"""The connections of one HTTP server: how many there are, how long they may be idle, how long a request may take.

A newcomer is always served. Where there are too many connections, the oldest that asks for nothing makes room, or, if
all of them ask, the oldest.
"""

import asyncio
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

CONNECTIONS_MAX: Final = 100
IDLE_S: Final = 10.0
REQUEST_S: Final = 60.0
"""For a whole request, its answer included."""


class HttpConnection(H11Protocol):
    """uvicorn's, with deadlines, and known from when it is accepted."""

    def __init__(self, connections: "HttpConnections", config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self._all = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: object = None

    @property
    def busy(self) -> bool:
        """Whether it waits for an answer or reads one."""
        return self.cycle is not None and not self.cycle.response_complete

    def arrived(self, transport: Any) -> bool:
        self.transport = transport
        self._all.come(self)
        self._deadline = self.loop.call_later(IDLE_S, self.end)
        return True

    def end(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self.flow is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)

    def _look(self) -> None:
        """A request begins or is over: a new deadline. Bytes that are not a whole head yet give none."""
        answering = self.cycle if self.busy else None
        if answering is not self._answering and self._deadline is not None:
            self._answering = answering
            self._deadline.cancel()
            self._deadline = self.loop.call_later(IDLE_S if answering is None else REQUEST_S, self.end)

    def _leave(self) -> None:
        self._all.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpConnections:
    """Those of one server that are not WebSockets."""

    def __init__(self) -> None:
        self._here: dict[HttpConnection, None] = {}

    def __len__(self) -> int:
        return len(self._here)

    def come(self, connection: HttpConnection) -> None:
        if len(self._here) >= CONNECTIONS_MAX:
            oldest = next((each for each in self._here if not each.busy), next(iter(self._here)))
            del self._here[oldest]
            oldest.end()
        self._here[connection] = None

    def leave(self, connection: HttpConnection) -> None:
        self._here.pop(connection, None)
