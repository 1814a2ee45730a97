"""Listening sockets: TCP, TLS, WebSocket and WebSocket over TLS, as many as configured."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from geomq.broker.config.free_address import cannot_listen, first_line
from geomq.broker.config.settings import Listener
from geomq.broker.connections.connection import Connection
from geomq.broker.connections.websocket import WebSocketConnection
from geomq.broker.state.turns import Turns
from geomq.errors import ConfigError

BACKLOG = 4_096
IDLE_S = 600
"""A connection that was silent for so long is probed by the system."""

ConnectionMaker = Callable[[Listener], Connection]


def tls_context(listener: Listener) -> ssl.SSLContext:
    """The server side TLS settings of a listener, or ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    minimum = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[listener.tls_min]
    context.minimum_version = minimum
    try:
        context.load_cert_chain(listener.certfile or "", listener.keyfile)
        if listener.cafile is not None:
            context.load_verify_locations(listener.cafile)
            context.verify_mode = ssl.CERT_REQUIRED if listener.require_certificate else ssl.CERT_OPTIONAL
        if listener.crlfile is not None:
            context.load_verify_locations(listener.crlfile)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"listener on port {listener.bind_port}: {first_line(error)}") from None
    return context


def _protocol_maker(listener: Listener, make: ConnectionMaker, turns: Turns) -> Callable[[], asyncio.Protocol]:
    if listener.websocket:
        return lambda: WebSocketConnection(make(listener), listener, turns)  # type: ignore[return-value]
    return lambda: make(listener)  # type: ignore[return-value]  # it has all of a protocol's methods


def _look_after(bound: socket.socket) -> None:
    """Let the system find out about clients that are gone without a word, also those that asked for no keep-alive; what
    is accepted has the same options."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)


class Listeners:
    """All open sockets of a broker."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self.addresses: list[tuple[str, str, int]] = []

    async def open(self, listener: Listener, make: ConnectionMaker, turns: Turns) -> None:
        """Bind a listener; ConfigError if the address cannot be had."""
        context = tls_context(listener) if listener.tls else None
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                _protocol_maker(listener, make, turns),
                listener.bind_host,
                listener.bind_port,
                ssl=context,
                backlog=BACKLOG,
                ssl_handshake_timeout=10.0 if context is not None else None,
            )
        except OSError as error:
            raise cannot_listen(listener, error) from None
        self._servers.append(server)
        for bound in server.sockets:
            _look_after(bound)
            host, port = bound.getsockname()[:2]
            self.addresses.append((listener.kind, str(host), int(port)))

    def stop(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()
