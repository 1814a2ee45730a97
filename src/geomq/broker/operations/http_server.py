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

from geomq.errors import ConfigError

STOP_S = 2.0
WEBSOCKET_MESSAGE_BYTES_MAX = 4_096


class Certificate(NamedTuple):
    """The PEM files of an HTTPS server."""

    certfile: Path
    keyfile: Path | None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: those are the broker's."""

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
            limit_concurrency=100,
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
        self._server = _Server(config)
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
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise ConfigError(f"{self._what} cannot listen on {host}:{port}: {error.strerror}") from None
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name=f"geomq-{self._what}")
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """Finish what is being answered, briefly, and close."""
        self._server.should_exit = True
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, STOP_S)
