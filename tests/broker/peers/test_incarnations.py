"""A broker that comes back empty, or whose clock or disk is in the past, is a broker like any other."""

import shutil
import time
from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import configs, until
from tests.broker.peers.test_membership import membership, settled

from geomq.broker.config.settings import Config, Persistence
from geomq.broker.platform import Platform
from geomq.broker.server import Broker
from geomq.client import Client
from geomq.routing.federation.changes import SetStrategy

pytestmark = pytest.mark.anyio
DAY_S = 86_400.0
YESTERDAY = Platform(wall_s=lambda: time.time() - DAY_S)
NUMBERS = [str(number).encode() for number in range(20)]


def kept(folder: Path) -> dict[str, Config]:
    """Two brokers that keep what they promise on disk."""
    return {
        name: msgspec.structs.replace(
            config,
            broker=msgspec.structs.replace(config.broker, data_dir=str(folder / name)),
            persistence=Persistence(sync=False),
        )
        for name, config in configs("flood_subscriptions", brokers=2).items()
    }


async def delivered(source: Broker, target: Broker, topic: str) -> list[bytes]:
    """What of the numbers that a client at one broker publishes reaches a client at another."""
    async with Client("127.0.0.1", target.port) as reader, Client("127.0.0.1", source.port) as writer:
        await reader.subscribe(f"{topic}/#", qos=1)
        await until(lambda: source.linked and target.linked)
        await until(lambda: reached(source, topic))
        for number in NUMBERS:
            await writer.publish(f"{topic}/a", number, qos=1)
        messages = aiter(reader)
        return [bytes((await anext(messages)).payload) for _ in NUMBERS]


def reached(source: Broker, topic: str) -> bool:
    """Whether a broker knows of a subscription elsewhere."""
    plan = source.core.node.strategy.plan(f"{topic}/a")
    return plan is not None and bool(plan.peers)


@pytest.mark.parametrize("survivor", ["columbus", "frankfurt"])
async def test_a_broker_with_a_wiped_disk_and_a_clock_a_day_behind_is_linked_again(
    tmp_path: Path, survivor: str
) -> None:
    configured = kept(tmp_path)
    (lost,) = set(configured) - {survivor}
    async with Broker(configured[survivor]) as stays:
        async with Broker(configured[lost]) as before:
            assert await delivered(before, stays, "before") == NUMBERS
        shutil.rmtree(tmp_path / lost)
        async with Broker(configured[lost], platform=YESTERDAY) as again:
            assert await delivered(again, stays, "there") == NUMBERS
            assert await delivered(stays, again, "back") == NUMBERS


async def test_a_broker_whose_disk_was_put_back_from_a_copy_is_linked_again(tmp_path: Path) -> None:
    configured = kept(tmp_path)
    async with Broker(configured["columbus"]) as stays:
        async with Broker(configured["frankfurt"]) as before:
            assert await delivered(before, stays, "first") == NUMBERS
        shutil.copytree(tmp_path / "frankfurt", tmp_path / "copy")
        async with Broker(configured["frankfurt"]) as before:
            assert await delivered(before, stays, "second") == NUMBERS
        shutil.rmtree(tmp_path / "frankfurt")
        shutil.move(tmp_path / "copy", tmp_path / "frankfurt")
        async with Broker(configured["frankfurt"], platform=YESTERDAY) as again:
            assert await delivered(again, stays, "there") == NUMBERS
            assert await delivered(stays, again, "back") == NUMBERS


async def test_what_is_retained_converges_with_a_broker_from_the_past(tmp_path: Path) -> None:
    configured = kept(tmp_path)

    async def retain(broker: Broker, topic: str, payload: bytes) -> None:
        async with Client("127.0.0.1", broker.port) as client:
            await client.publish(topic, payload, qos=1, retain=True)

    def retained(broker: Broker) -> dict[str, bytes]:
        found = {topic: broker.parts.retention.get(topic)[0] for topic in broker.parts.retention.topics()}
        return {topic: bytes(message.payload) for topic, message in found.items() if message is not None}

    async with Broker(configured["columbus"]) as stays:
        async with Broker(configured["frankfurt"]) as before:
            await until(lambda: before.linked and stays.linked)
            for topic in ("changed", "deleted", "kept"):
                await retain(before, topic, b"old")
            await until(lambda: len(retained(stays)) == 3)
        shutil.rmtree(tmp_path / "frankfurt")
        await retain(stays, "meanwhile", b"new")
        async with Broker(configured["frankfurt"], platform=YESTERDAY) as again:
            await until(lambda: len(retained(again)) == 4)
            await retain(again, "changed", b"new")
            await retain(again, "deleted", b"")
            expected = {"changed": b"new", "kept": b"old", "meanwhile": b"new"}
            await until(lambda: retained(stays) == retained(again) == expected)
            assert retained(stays) == expected


async def test_a_broker_with_an_old_copy_of_its_disk_learns_how_the_federation_has_changed(tmp_path: Path) -> None:
    configured = kept(tmp_path)
    async with Broker(configured["columbus"]) as stays:
        async with Broker(configured["frankfurt"]) as before:
            await until(lambda: before.linked and stays.linked)
            membership(before).change(SetStrategy("dht"))
            await until(lambda: settled(before, stays))
        shutil.copytree(tmp_path / "frankfurt", tmp_path / "copy")
        async with Broker(configured["frankfurt"]) as before:
            await until(lambda: before.linked and stays.linked)
            membership(stays).change(SetStrategy("flood_subscriptions"))
            await until(lambda: settled(before, stays, number=2))
        shutil.rmtree(tmp_path / "frankfurt")
        shutil.move(tmp_path / "copy", tmp_path / "frankfurt")
        async with Broker(configured["frankfurt"], platform=YESTERDAY) as again:
            assert membership(again).status().strategy == "dht"
            await until(lambda: settled(again, stays, number=2))
            assert membership(again).status().strategy == "flood_subscriptions"
            assert await delivered(stays, again, "a") == NUMBERS
