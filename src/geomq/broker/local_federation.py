"""A federation on this machine: brokers of one process on loopback, for demonstrations, tutorials and tests.

Everything is kept in memory. Each broker has ports of its own, counted up from a first one, or any free ones.
"""

import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from geomq.broker import config as settings
from geomq.broker.config import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.errors import ConfigError
from geomq.geo import Location, location_text
from geomq.routing.registry import strategy_class

HOST = "127.0.0.1"


class Site(NamedTuple):
    """A broker's name and where it stands."""

    name: str
    location: Location


THREE_REGIONS = (
    Site("paris", Location(48.877366, 2.359708)),
    Site("frankfurt", Location(50.106732, 8.663124)),
    Site("columbus", Location(39.961332, -82.999083)),
)


def local_configs(
    sites: Sequence[Site],
    strategy: str,
    options: Mapping[str, Any] | None = None,
    *,
    first_port: int | None = None,
) -> dict[str, Config]:
    """The config of every broker; clients of site i connect to `first_port` + i, or to any free port."""
    strategy_class(strategy)
    if len({site.name for site in sites}) != len(sites):
        raise ConfigError("two brokers have the same name")
    peer_ports = dict(zip((site.name for site in sites), free_ports(len(sites)), strict=True))
    return {
        site.name: Config(
            broker=settings.Broker(name=site.name, location=location_text(site.location)),
            listeners=(Listener(host=HOST, port=0 if first_port is None else first_port + number),),
            persistence=Persistence(enabled=False),
            metrics=Metrics(sys_interval_s=0),
            routing=settings.Routing(strategy=strategy, options=dict(options or {})),
            federation=settings.Federation(host=HOST, port=peer_ports[site.name]),
            peers=tuple(
                settings.Peer(
                    name=other.name,
                    address=f"{HOST}:{peer_ports[other.name]}",
                    location=location_text(other.location),
                )
                for other in sites
                if other is not site
            ),
        )
        for number, site in enumerate(sites)
    }


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind((HOST, 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class LocalFederation:
    """`async with LocalFederation(configs) as brokers:` starts all of them and stops them at the end."""

    def __init__(self, configs: Mapping[str, Config]) -> None:
        self._configs = configs
        self._stack = AsyncExitStack()
        self.brokers: dict[str, Broker] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for name, config in self._configs.items():
                self.brokers[name] = await stack.enter_async_context(Broker(config))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def linked(self) -> bool:
        """Whether every broker is connected with every other."""
        others = len(self.brokers) - 1
        return all(
            broker.peering is None or len(broker.peering.connected) == others for broker in self.brokers.values()
        )
