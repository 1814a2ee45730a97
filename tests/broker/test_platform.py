"""A broker takes time, random numbers, threads, disk and addresses from what it is given."""

import itertools
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from geomq.broker.config.settings import BrokerSettings, Config, Federation, Listener
from geomq.broker.platform import Platform
from geomq.broker.server import Broker
from geomq.broker.storage.configured import open_configured_store
from geomq.broker.storage.store import Store

pytestmark = pytest.mark.anyio


class Given:
    """Counts what a broker asks for."""

    def __init__(self) -> None:
        self.threads: list[tuple[str, int]] = []
        self.stores = 0
        self.addresses: list[int | None] = []
        self.bytes = itertools.count()

    def platform(self) -> Platform:
        return Platform(
            wall_s=lambda: 5_000_000_000.0,
            perf_ns=lambda: 7,
            random_bytes=lambda count: next(self.bytes).to_bytes(count),
            uniform=lambda low, high: low,
            start_workers=self.start_workers,
            processors=3,
            check_free=self.check_free,
        )

    def start_workers(self, name: str, threads: int) -> Executor:
        self.threads.append((name, threads))
        return ThreadPoolExecutor(threads)

    def open_store(self, config: Config) -> Store:
        self.stores += 1
        return open_configured_store(config)

    async def check_free(self, listener: Listener) -> None:
        self.addresses.append(listener.port)


async def test_a_broker_asks_only_the_platform_it_was_given(tmp_path: Path) -> None:
    given = Given()
    config = Config(
        broker=BrokerSettings(name="b", data_dir=str(tmp_path)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        federation=Federation(host="127.0.0.1", port=0),
    )
    async with Broker(config, platform=given.platform(), open_store=given.open_store) as broker:
        assert broker.core.node.epoch in range(1, 100)
    assert (given.stores, given.addresses) == (1, [0])
    assert sorted(given.threads) == [("geomq-password", 2), ("geomq-sync", 1)]
    assert next(given.bytes) > 0
