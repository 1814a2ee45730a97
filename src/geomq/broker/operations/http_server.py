"""Runs one ASGI application on the running event loop: binds first, so that a taken port is one clear line.

Knows nothing of what the application answers; the admin API and the dashboard both stand on it.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp

from geomq.broker.operations.http_connections import HttpConnection, HttpConnections
from geomq.broker.sockets.accepting import Acceptor, here
from geomq.broker.sockets.descriptors import descriptors
from geomq.errors import ConfigError

STOP_S = 2.0
WEBSOCKET_MESSAGE_BYTES_MAX = 4_096


class Certificate(NamedTuple):
    """The PEM files of an HTTPS server."""

    certfile: Path
    keyfile: Path | None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which are the broker's, and without its listening sockets."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves one ASGI application between `start` and `stop`. `what` names it in an error."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        what: str,
        websocket: bool = False,
        certificate: Certificate | None = None,
    ) -> None:
        self._host, self._port, self._what = host, port, what
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="h11",
            ws="websockets-sansio" if websocket else "none",
            ws_max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,
            ssl_certfile=None if certificate is None else str(certificate.certfile),
            ssl_keyfile=None if certificate is None or certificate.keyfile is None else str(certificate.keyfile),
        )
        try:
            config.load()
        except OSError as error:
            raise ConfigError(f"{what} certificate: {error}") from None
        self._uvicorn = config
        self._server = _Server(config)
        self._connections = HttpConnections()
        self._acceptor: Acceptor | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Bind and begin to serve; `port` is then the real one."""
        host, port = self._host, self._port
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.setblocking(False)
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise ConfigError(f"{self._what} cannot listen on {host}:{port}: {error.strerror}") from None
        self.port = listener.getsockname()[1]
        tls, end = self._uvicorn.ssl, descriptors().http_end
        self._task = asyncio.create_task(self._server.serve(), name=f"geomq-{self._what}")
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.001)
        self._acceptor = Acceptor([listener], here(self._connection, lambda: tls), end=end)

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._connections, self._uvicorn, self._server.server_state)

    async def stop(self) -> None:
        """Finish what is being answered, briefly, and close."""
        if self._acceptor is not None:
            self._acceptor.close()
        self._server.should_exit = True
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, STOP_S)
