"""The how-to's strategy with messages of its own in three real brokers, which are killed."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import configs, free_ports
from tests.probe import Probe

from geomq.broker.config.settings import Config, Persistence
from geomq.mqtt.codec.packets import Connack, Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.testbed.processes import BrokerProcess, wait_until

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-strategy.md"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
HUB = {"hubs": {"weather": (50.11, 8.66)}}
"""The hub of the weather is frankfurt."""
TRIAL = b"trial"
KEEPS = "    keeps = (Put(WANTED"


def durable(config: Config, port: int, folder: Path) -> Config:
    return msgspec.structs.replace(
        config,
        broker=msgspec.structs.replace(config.broker, data_dir=str(folder / config.broker.name)),
        listeners=(msgspec.structs.replace(config.listeners[0], port=port),),
        persistence=Persistence(free_bytes_min=0),
    )


@asynccontextmanager
async def brokers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, page: str = PYTHON[2]
) -> AsyncIterator[dict[str, BrokerProcess]]:
    """Columbus, frankfurt and paris with the strategy of the page, linked."""
    (folder / "hubs.py").write_text(PYTHON[0])
    (folder / "interested.py").write_text(page)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(folder))
    configured = configs("interested:InterestedHubs", HUB, brokers=3)
    running = {
        name: BrokerProcess(durable(config, port, folder), folder)
        for (name, config), port in zip(configured.items(), free_ports(3), strict=True)
    }
    try:
        for broker in running.values():
            await broker.start()
        await linked(*running.values())
        yield running
    finally:
        for broker in running.values():
            broker.kill()


async def linked(*running: BrokerProcess) -> None:
    for broker in running:
        await wait_until(broker.is_linked, f"{broker.name} is not connected to its peers", seconds=30)


async def subscriber(port: int) -> tuple[Probe, Connack]:
    lasting = Properties(session_expiry_interval=3600)
    return await Probe.connect(port, Connect("subscriber", V5, clean_start=False, properties=lasting))


async def publish(port: int, topic: str, payload: bytes) -> None:
    """Publish an event of QoS 1 and wait until it is acknowledged."""
    async with (await Probe.connect(port, Connect("publisher", V5)))[0] as probe:
        probe.publish(topic, payload, 1)
        await probe.expect(Puback)


async def receive(probe: Probe, patience_s: float = 30.0) -> str:
    """The topic of the next event, after those that were published to see whether any arrive."""
    while True:
        published = await probe.expect(Publish, patience_s)
        probe.send(Puback(published.packet_id))
        if published.payload != TRIAL:
            return published.topic


async def arrives(probe: Probe, port: int, topic: str) -> None:
    """Publish until something is received: by then all brokers concerned know of the subscription."""

    async def received() -> bool:
        await publish(port, topic, TRIAL)
        return not await probe.silent(0.5)

    await wait_until(received, f"nothing on {topic} arrives", seconds=30)


async def test_events_go_through_the_hub_and_nothing_is_lost_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers(tmp_path, monkeypatch) as running:
        columbus, frankfurt, paris = running.values()
        probe, _ = await subscriber(paris.port)
        await probe.subscribe(SubscribeRequest("weather/#", 1))
        await arrives(probe, columbus.port, "weather/rain")
        frankfurt.kill()
        await publish(columbus.port, "weather/snow", b"while the hub is away")
        await frankfurt.start()
        assert await receive(probe) == "weather/snow"
        for broker in running.values():
            assert (await broker.numbers())["peer_messages_refused"] == 0
        await probe.drop()


@pytest.mark.parametrize("kept", [True, False], ids=["as on the page", "with a message that is not kept"])
async def test_what_a_broker_was_told_by_a_message_of_the_strategy_survives_a_crash_if_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The publisher's broker comes back first, and all it knows of others is on its disk."""
    page = PYTHON[2] if kept else PYTHON[2].replace(KEEPS, KEEPS.replace("keeps", "forgets"))
    assert kept == (page == PYTHON[2])
    async with brokers(tmp_path, monkeypatch, page=page) as running:
        columbus, _, paris = running.values()
        probe, _ = await subscriber(paris.port)
        await probe.subscribe(SubscribeRequest("news/#", 1))
        await arrives(probe, columbus.port, "news/first")
        await probe.drop()
        paris.kill()
        columbus.kill()
        await columbus.start()
        await publish(columbus.port, "news/second", b"while paris is away")
        await paris.start()
        await linked(columbus, paris)
        probe, connack = await subscriber(paris.port)
        assert connack.session_present
        await publish(columbus.port, "news/third", b"when it is back")
        expected = ["news/second", "news/third"] if kept else ["news/third"]
        assert [await receive(probe) for _ in expected] == expected
        await probe.drop()
