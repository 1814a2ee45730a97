"""A federation of real brokers in this process, for tests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from geomq.broker import config as settings
from geomq.broker.config import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker

PLACES = {"columbus": "39.96,-83.0", "frankfurt": "50.11,8.66", "paris": "48.88,2.36", "sydney": "-33.9,151.2"}


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def configs(strategy: str, options: dict[str, Any] | None = None, *, brokers: int = 4) -> dict[str, Config]:
    """The config of each broker of a federation on loopback."""
    names = list(PLACES)[:brokers]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    return {
        name: Config(
            broker=settings.Broker(name=name, location=PLACES[name]),
            listeners=(Listener(host="127.0.0.1", port=0),),
            persistence=Persistence(enabled=False),
            metrics=Metrics(sys_interval_s=0),
            routing=settings.Routing(strategy=strategy, options=options or {}),
            federation=settings.Federation(host="127.0.0.1", port=ports[name]),
            peers=tuple(
                settings.Peer(name=other, address=f"127.0.0.1:{ports[other]}", location=PLACES[other])
                for other in names
                if other != name
            ),
        )
        for name in names
    }


@asynccontextmanager
async def federation(configured: dict[str, Config]) -> AsyncIterator[dict[str, Broker]]:
    """Start all brokers and wait until every link is up."""
    async with AsyncExitStack() as stack:
        brokers = {name: await stack.enter_async_context(Broker(config)) for name, config in configured.items()}
        await until(lambda: all(peers_up(broker) == len(brokers) - 1 for broker in brokers.values()))
        yield brokers


def peers_up(broker: Broker) -> int:
    return 0 if broker.peering is None else len(broker.peering.connected)


async def until(condition: Any, *, seconds: float = 10.0) -> None:
    """Wait for something to become true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never happened"
        await asyncio.sleep(0.01)
