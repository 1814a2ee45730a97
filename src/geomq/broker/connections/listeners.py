"""Listening sockets: TCP, TLS, WebSocket and WebSocket over TLS, as many as configured."""

import ssl
from collections.abc import Callable
from typing import Protocol

from geomq.broker.config.free_address import cannot_listen
from geomq.broker.config.settings import Listener
from geomq.broker.connections.connection import Connection
from geomq.broker.connections.websocket import WebSocketConnection
from geomq.broker.platform import Platform
from geomq.broker.sockets.accepting import Arriving, Server
from geomq.broker.sockets.tls import tls_context
from geomq.broker.state.turns import Turns

ConnectionMaker = Callable[[Listener], Connection]


def _protocol_maker(listener: Listener, make: ConnectionMaker, turns: Turns) -> Callable[[], Arriving]:
    if listener.websocket:
        return lambda: WebSocketConnection(make(listener), listener, turns)
    return lambda: make(listener)


class Crew(Protocol):
    """Those who carry connections instead of this process."""

    async def open_server(
        self,
        listener: Listener,
        make: Callable[[], Arriving],
        *,
        tls: Callable[[], ssl.SSLContext | None],
        end: int | None,
    ) -> Server: ...

    def set_up(self) -> None:
        """The files of listeners are to be read again."""


class Listeners:
    """All open sockets of a broker."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._crew: Crew | None = None
        self._servers: list[Server] = []
        self._contexts: dict[Listener, ssl.SSLContext] = {}
        self.addresses: list[tuple[str, str, int]] = []

    def carry_by(self, crew: Crew) -> None:
        """Have others carry what is accepted from now on."""
        self._crew = crew

    async def open(self, listener: Listener, make: ConnectionMaker, turns: Turns) -> None:
        """Bind a listener; ConfigError if the address cannot be had."""
        if listener.tls:
            self._contexts[listener] = tls_context(listener)
        try:
            server = await self._open(listener, _protocol_maker(listener, make, turns))
        except OSError as error:
            raise cannot_listen(listener, error) from None
        self._servers.append(server)
        self.addresses += [(listener.kind, host, port) for host, port in server.addresses]

    async def _open(self, listener: Listener, make: Callable[[], Arriving]) -> Server:
        platform = self._platform
        tls, end = (lambda: self._contexts.get(listener)), platform.descriptors().clients_end
        if self._crew is not None:
            return await self._crew.open_server(listener, make, tls=tls, end=end)
        return await platform.open_server(make, listener.bind_host, listener.bind_port, tls=tls, end=end)

    def read_certificates(self) -> dict[Listener, ssl.SSLContext]:
        """The files of all listeners as they are now, or ConfigError."""
        return {listener: tls_context(listener) for listener in self._contexts}

    def take_certificates(self, contexts: dict[Listener, ssl.SSLContext]) -> None:
        """Use them for new connections."""
        self._contexts = contexts
        if self._crew is not None:
            self._crew.set_up()

    def stop(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()
