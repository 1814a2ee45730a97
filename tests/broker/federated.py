"""A federation of real brokers in this process, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from geomq.broker.config.settings import Config
from geomq.broker.local_federation import CLOUD, LocalFederation, Site, free_ports, local_configs
from geomq.broker.server import Broker
from geomq.geo import Location

__all__ = ["admitting", "configs", "federation", "free_ports", "peers_up", "until"]

SITES = (
    Site("columbus", Location(39.96, -83.0)),
    Site("frankfurt", Location(50.11, 8.66)),
    Site("paris", Location(48.88, 2.36)),
    Site("sydney", Location(-33.9, 151.2)),
)


def configs(strategy: str, options: dict[str, Any] | None = None, *, brokers: int = 4) -> dict[str, Config]:
    """The config of each broker of a federation on loopback; a cloud is the test's own affair."""
    configured = local_configs(SITES[:brokers], strategy, options)
    configured.pop(CLOUD, None)
    return configured


def admitting(configured: dict[str, Config], *names: str) -> dict[str, Config]:
    """The same where brokers of these names may join."""
    return {
        broker: msgspec.structs.replace(
            config, federation=msgspec.structs.replace(config.federation, admit=names or False)
        )
        for broker, config in configured.items()
    }


@asynccontextmanager
async def federation(configured: dict[str, Config]) -> AsyncIterator[dict[str, Broker]]:
    """Start all brokers and wait until every link is up."""
    async with LocalFederation(configured) as running:
        await until(lambda: running.linked)
        yield running.brokers


def peers_up(broker: Broker) -> int:
    return 0 if broker.peering is None else len(broker.peering.connected)


async def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    """Wait for something to become true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never happened"
        await asyncio.sleep(0.01)
