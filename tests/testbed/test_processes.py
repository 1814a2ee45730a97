"""Brokers as child processes: started, linked, killed, started again."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from geomq.broker.config.settings import Config, Listener
from geomq.broker.local_federation import CLOUD, THREE_REGIONS, free_ports, local_configs
from geomq.errors import UsageError
from geomq.testbed.emulated_link import Conditions, EmulatedLink
from geomq.testbed.processes import BrokerProcess, Federation, MosquittoProcess, mosquitto_path


def configs(strategy: str, brokers: int = 2) -> list[Config]:
    made = local_configs(THREE_REGIONS[:brokers], strategy, first_port=None)
    made.pop(CLOUD, None)
    ports = free_ports(len(made))
    return [
        msgspec.structs.replace(config, listeners=(Listener(host="127.0.0.1", port=port),))
        for config, port in zip(made.values(), ports, strict=True)
    ]


def through(config: Config, peer: str, port: int) -> Config:
    """The config with one peer reached at another port."""
    peers = tuple(
        msgspec.structs.replace(each, address=f"127.0.0.1:{port}") if each.name == peer else each
        for each in config.peers
    )
    return msgspec.structs.replace(config, peers=peers)


def test_brokers_link_through_an_emulated_link_and_again_after_a_kill(tmp_path: Path) -> None:
    async def run() -> None:
        made = {config.broker.name: config for config in configs("disgb_events")}
        port = made["paris"].federation.port
        assert port is not None
        async with EmulatedLink(("127.0.0.1", port), Conditions(latency_ms=5)) as link:
            made["frankfurt"] = through(made["frankfurt"], "paris", link.port)
            async with Federation(made.values(), tmp_path) as federation:
                paris = federation.brokers["paris"]
                assert await paris.is_linked()
                assert link.bytes_carried > 0
                first = paris.pid
                paris.kill()
                assert not paris.running
                await paris.start()
                await federation.wait_linked()
                assert paris.pid != first
                assert (await paris.numbers())["peers_connected"] == 1
            assert not paris.running
        assert "listening" in paris.log

    asyncio.run(run())


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (config,) = configs("disgb_events", brokers=1)
    broken = msgspec.structs.replace(config, auth=msgspec.structs.replace(config.auth, acl_file="nowhere"))
    with pytest.raises(UsageError, match=r"did not start: .*nowhere"):
        asyncio.run(BrokerProcess(broken, tmp_path).start())


def test_no_port_is_given_away_twice() -> None:
    ports = [port for _ in range(50) for port in free_ports(3)]
    assert len(set(ports)) == 150


@pytest.mark.skipif(mosquitto_path() is None, reason="mosquitto is not installed")
def test_mosquitto_starts_on_a_free_port_and_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with MosquittoProcess("cloud", tmp_path) as cloud:
            assert cloud.running
        assert not cloud.running

    asyncio.run(run())
