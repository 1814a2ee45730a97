"""Runs the admin API on the broker's own event loop: binds first, so that a taken port is one clear line."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from geomq.broker.config import Admin
from geomq.errors import ConfigError

TOKEN_CHARS_MIN, TOKEN_BYTES_MAX = 16, 4_096
STOP_S = 2.0


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: those are the broker's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class AdminServer:
    """Serves one ASGI application between `start` and `stop`."""

    def __init__(self, app: ASGIApp, config: Admin) -> None:
        self._config = config
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http="h11",
                ws="none",
                limit_concurrency=100,
                timeout_graceful_shutdown=1,
            )
        )
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Bind and begin to serve; `port` is then the real one."""
        host, port = self._config.host, self._config.port
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
            raise ConfigError(f"[admin] cannot listen on {host}:{port}: {error.strerror}") from None
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="geomq-admin")
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """Finish what is being answered, briefly, and close."""
        self._server.should_exit = True
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, STOP_S)


def load_token(config: Admin) -> str | None:
    """The bearer token from its file, or None if there is no such file in the config."""
    if config.token_file is None:
        return None
    try:
        with Path(config.token_file).open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX).decode().strip()
    except OSError as error:
        raise ConfigError(f"{config.token_file}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{config.token_file}: one line with a token of at least {TOKEN_CHARS_MIN} characters")
    return token
