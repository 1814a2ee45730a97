"""A federation on this machine: brokers of one process on loopback, for demonstrations, tutorials and tests.

Everything is kept in memory. Each broker has ports of its own, counted up from a first one, or any free ones.
"""

import itertools
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from geomq.broker.config import settings
from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.platform import SYSTEM
from geomq.broker.server import Broker
from geomq.errors import ConfigError
from geomq.geo import Location, location_text
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.registry import strategy_class

HOST = "127.0.0.1"
CLOUD = "cloud"
PORTS = range(10_000, 32_000)
_candidates = itertools.islice(itertools.cycle(PORTS), int.from_bytes(SYSTEM.random_bytes(8)) % len(PORTS), None)


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
    workers: int = 1,
    sys_interval_s: int = 0,
) -> dict[str, Config]:
    """The config of every broker; clients of site i connect to `first_port` + i, or to any free port.

    Broadcast groups get a plain broker of their own as cloud.
    """
    with_cloud = issubclass(strategy_class(strategy), BroadcastGroups)
    cloud_port = free_ports(1)[0]
    cloud = settings.Cloud(address=f"{HOST}:{cloud_port}") if with_cloud else settings.Cloud()
    if len({site.name for site in sites}) != len(sites):
        raise ConfigError("two brokers have the same name")
    peer_ports = dict(zip((site.name for site in sites), free_ports(len(sites)), strict=True))
    configs = {}
    if with_cloud:  # first, because the others look for it as soon as they start
        configs[CLOUD] = Config(
            broker=settings.BrokerSettings(name=CLOUD),
            listeners=(Listener(host=HOST, port=cloud_port),),
            persistence=Persistence(enabled=False),
            metrics=Metrics(sys_interval_s=0),
        )
    configs |= {
        site.name: Config(
            broker=settings.BrokerSettings(name=site.name, location=location_text(site.location), workers=workers),
            listeners=(Listener(host=HOST, port=0 if first_port is None else first_port + number),),
            persistence=Persistence(enabled=False),
            metrics=Metrics(sys_interval_s=sys_interval_s),
            routing=settings.Routing(strategy=strategy, options=dict(options or {})),
            federation=settings.Federation(host=HOST, port=peer_ports[site.name]),
            cloud=cloud,
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
    return configs


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now.

    They lie below those that systems hand out to connections, and every process counts them up from a start of its
    own, so that none is taken before a broker listens on it.
    """
    found = list(itertools.islice(filter(_is_free, itertools.islice(_candidates, len(PORTS))), count))
    if len(found) < count:
        raise ConfigError(f"{HOST} has fewer than {count} free ports from {PORTS[0]} to {PORTS[-1]}")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


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
        """Whether every broker is connected with all its peers."""
        return all(broker.linked for broker in self.brokers.values())
