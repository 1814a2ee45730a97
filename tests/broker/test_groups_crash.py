"""Broadcast groups of real processes with Mosquitto as cloud: whoever is killed finds everything when it is back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import free_ports, until
from tests.broker.mosquitto_cloud import MosquittoCloud, cloud_configs, mosquitto, needs_mosquitto
from tests.broker.test_federation_crash import Process, Receiver, publish, until_heard, until_more

from geomq.broker.config import settings
from geomq.broker.config.text import config_text

pytestmark = [pytest.mark.anyio, needs_mosquitto]

LIVE: dict[str, Any] = {
    "announce_ms": 100,
    "expire_ms": 400,
    "silence_ms": 1_500,
    "answer_ms": 1_500,
    "request_probability": 1,
    "lcm": {"frankfurt": 5, "paris": 3, "columbus": 1},
    "join_ms": 500,
}
FIXED: dict[str, Any] = {"formation": "fixed", "groups": {"columbus": [], "frankfurt": ["paris"]}}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[MosquittoCloud]:
    async with mosquitto(tmp_path) as running:
        yield running


def processes(cloud: MosquittoCloud, options: dict[str, Any], folder: Path) -> dict[str, Process]:
    found = {}
    configured = cloud_configs(settings.Cloud(address=cloud.address), options, brokers=3)
    for (name, config), port in zip(configured.items(), free_ports(3), strict=True):
        changed = msgspec.structs.replace(
            config,
            broker=msgspec.structs.replace(config.broker, data_dir=str(folder / name)),
            listeners=(settings.Listener(host="127.0.0.1", port=port),),
            persistence=settings.Persistence(enabled=True),
            limits=settings.Limits(queue_messages_max=100_000),
        )
        (folder / f"{name}.toml").write_text(config_text(changed))
        found[name] = Process(name, port, folder / f"{name}.toml")
    return found


@pytest.mark.parametrize(
    ("options", "source"),
    [(LIVE, "frankfurt"), (FIXED, "frankfurt"), (FIXED, "columbus")],
    ids=["live", "fixed", "by-cloud"],
)
async def test_a_killed_member_finds_what_was_published_while_it_was_down(
    cloud: MosquittoCloud, options: dict[str, Any], source: str, tmp_path: Path
) -> None:
    brokers = processes(cloud, options, tmp_path)
    acknowledged: set[bytes] = set()
    receiver = Receiver(brokers["paris"].port, 1)
    tasks = [asyncio.create_task(receiver.run())]
    try:
        for broker in brokers.values():
            await broker.start()
        await asyncio.wait_for(receiver.ready.wait(), 60)
        await until_heard(brokers[source].port, receiver)
        await asyncio.sleep(2.0)
        tasks.append(asyncio.create_task(publish(brokers[source].port, 1, acknowledged)))
        await until_more(acknowledged)
        brokers["paris"].stop()
        await until_more(acknowledged, events=100)
        await brokers["paris"].start()
        await until_more(acknowledged, events=100)
        tasks.pop().cancel()
        await until(lambda: acknowledged <= set(receiver.got), seconds=60)
        assert len(acknowledged) > 200
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for broker in brokers.values():
            broker.stop()
