"""Listening sockets: TCP, TLS, WebSocket and WebSocket over TLS, as many as configured."""

import ssl
from collections.abc import Callable

from geomq.broker.config.free_address import cannot_listen, first_line
from geomq.broker.config.settings import Listener
from geomq.broker.connections.connection import Connection
from geomq.broker.connections.websocket import WebSocketConnection
from geomq.broker.platform import Platform
from geomq.broker.sockets.accepting import Arriving, Server
from geomq.broker.state.turns import Turns
from geomq.errors import ConfigError

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


def _protocol_maker(listener: Listener, make: ConnectionMaker, turns: Turns) -> Callable[[], Arriving]:
    if listener.websocket:
        return lambda: WebSocketConnection(make(listener), listener, turns)
    return lambda: make(listener)


class Listeners:
    """All open sockets of a broker."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._servers: list[Server] = []
        self._contexts: dict[Listener, ssl.SSLContext] = {}
        self.addresses: list[tuple[str, str, int]] = []

    async def open(self, listener: Listener, make: ConnectionMaker, turns: Turns) -> None:
        """Bind a listener; ConfigError if the address cannot be had."""
        if listener.tls:
            self._contexts[listener] = tls_context(listener)
        platform = self._platform
        try:
            server = await platform.open_server(
                _protocol_maker(listener, make, turns),
                listener.bind_host,
                listener.bind_port,
                tls=lambda: self._contexts.get(listener),
                end=platform.descriptors().clients_end,
            )
        except OSError as error:
            raise cannot_listen(listener, error) from None
        self._servers.append(server)
        self.addresses += [(listener.kind, host, port) for host, port in server.addresses]

    def read_certificates(self) -> dict[Listener, ssl.SSLContext]:
        """The files of all listeners as they are now, or ConfigError."""
        return {listener: tls_context(listener) for listener in self._contexts}

    def take_certificates(self, contexts: dict[Listener, ssl.SSLContext]) -> None:
        """Use them for new connections."""
        self._contexts = contexts

    def stop(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()
