"""Whether an address can be listened on: asked before anything is written for a broker that could not serve."""

import asyncio
import contextlib
import errno
import socket
from typing import Any

from geomq.broker.config.settings import Listener
from geomq.errors import ConfigError


async def check_free(listener: Listener) -> None:
    """Refuse an address that another program has or that is not ours to take."""
    host, port, loop = listener.bind_host, listener.bind_port, asyncio.get_running_loop()
    with contextlib.suppress(socket.gaierror):
        for family, *_, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            try:
                _bind_once(family, address)
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    raise cannot_listen(listener, error) from None


def _bind_once(family: int, address: tuple[Any, ...]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(address)


def cannot_listen(listener: Listener, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {listener.host}:{listener.bind_port}: {first_line(error)}")


def first_line(error: OSError) -> str:
    """What the system says, short."""
    return (error.strerror or str(error) or type(error).__name__).splitlines()[0]
