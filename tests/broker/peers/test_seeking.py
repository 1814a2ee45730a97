"""A broker and its seed: it asks until it is taken in."""

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import admitting, configs, federation, until

from geomq.broker.peers.channel import Credentials
from geomq.broker.peers.federating import credentials_of
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.peers.seeking import Seeker
from geomq.routing.federation.description import BrokerEntry, decode_description

pytestmark = pytest.mark.anyio
ROME = BrokerEntry("rome", (41.9, 12.5), "127.0.0.1:9")
OSLO = BrokerEntry("oslo", (60.0, 10.7), "127.0.0.1:9")


def seeker(port: int, found: list[bytes], key: bytes | None = None, entry: BrokerEntry = ROME) -> Seeker:
    def taken_in(description: bytes) -> bool:
        found.append(description)
        return "rome" in decode_description(description).names

    tls: ssl.SSLContext | None = None
    return Seeker(PeerAddress("127.0.0.1", port), entry, Credentials("rome", key), dial_tls=lambda: tls, found=taken_in)


async def test_the_answer_is_the_description_with_the_newcomer_in_it() -> None:
    configured = admitting(configs("flood_events", brokers=2), "rome")
    async with federation(configured):
        found: list[bytes] = []
        asking = seeker(configured["columbus"].federation.port or 0, found)
        asking.start()
        await until(lambda: bool(found))
        assert decode_description(found[0]).names == ("columbus", "frankfurt", "rome")
        asking.stop()


async def test_one_without_the_key_learns_nothing(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("k" * 32)
    configured = {
        name: msgspec.structs.replace(
            config, federation=msgspec.structs.replace(config.federation, key_file=str(key_file))
        )
        for name, config in admitting(configs("flood_events", brokers=2), "rome").items()
    }
    async with federation(configured) as brokers:
        assert credentials_of(configured["columbus"]).key is not None
        found: list[bytes] = []
        asking = seeker(configured["columbus"].federation.port or 0, found, key=b"x" * 32)
        asking.start()
        await asyncio.sleep(1.0)
        asking.stop()
        assert found == []
        membership = brokers["columbus"].membership
        assert membership is not None
        assert membership.status().edition.number == 0


async def test_nobody_joins_under_another_name() -> None:
    configured = admitting(configs("flood_events", brokers=2), "rome", "oslo")
    async with federation(configured) as brokers:
        found: list[bytes] = []
        asking = seeker(configured["columbus"].federation.port or 0, found, entry=OSLO)
        asking.start()
        await asyncio.sleep(0.7)
        asking.stop()
        assert found == []
        assert all(broker.linked for broker in brokers.values())
