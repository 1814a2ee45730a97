"""A disk that is really full: a small file system of its own, filled to the last byte."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.probe import Probe

from geomq.broker.config.settings import BrokerSettings, Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import NEVER_EXPIRES

pytestmark = pytest.mark.anyio

DISK_BYTES = 32 << 20
PAYLOAD_BYTES = 100_000
KEEPS = Properties(session_expiry_interval=NEVER_EXPIRES)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@asynccontextmanager
async def running(disk: Path, *, reserve: int = 0) -> AsyncIterator[Broker]:
    config = Config(
        broker=BrokerSettings(data_dir=str(disk / "data")),
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(free_bytes_min=reserve),
        metrics=Metrics(sys_interval_s=0),
    )
    async with Broker(config) as broker:
        yield broker


def fill(disk: Path, *, leave: int) -> Path:
    """Take all space but so much."""
    space = os.statvfs(disk)
    ballast = disk / "ballast"
    with open(ballast, "wb") as file:
        file.write(b"\0" * max(0, space.f_bavail * space.f_frsize - leave))
    return ballast


async def publish_until_unanswered(probe: Probe) -> list[bytes]:
    """QoS 1 events one after the other; those acknowledged until one is not."""
    kept: list[bytes] = []
    for number in range(200):
        payload = f"{number:06}".encode() + b"x" * PAYLOAD_BYTES
        probe.publish("t", payload, 1)
        try:
            puback = await asyncio.wait_for(probe.expect(Puback), 2.0)
        except TimeoutError:
            return kept
        if puback.reason == ReasonCode.QUOTA_EXCEEDED:
            return kept
        kept.append(payload)
    raise AssertionError("the disk never was full")


async def test_below_the_reserve_qos_1_is_refused_and_qos_0_goes_on(small_disk: Path) -> None:
    async with running(small_disk, reserve=8 << 20) as broker:
        subscriber, _ = await Probe.connect(broker.port, Connect("s"))
        await subscriber.subscribe(SubscribeRequest("t", 1))
        publisher, _ = await Probe.connect(broker.port, Connect("p"))
        ballast = fill(small_disk, leave=1 << 20)
        await asyncio.sleep(0.3)
        publisher.publish("t", b"kept", 1)
        puback = await publisher.expect(Puback)
        assert puback.reason == ReasonCode.QUOTA_EXCEEDED
        publisher.publish("t", b"passing")
        assert (await subscriber.expect(Publish)).payload == b"passing"
        ballast.unlink()
        await asyncio.sleep(0.3)
        publisher.publish("t", b"kept", 1)
        assert (await publisher.expect(Puback)).reason == ReasonCode.SUCCESS
        assert (await subscriber.expect(Publish)).payload == b"kept"
        await publisher.drop()
        await subscriber.drop()


async def test_on_a_full_disk_nothing_is_acknowledged_that_is_not_kept(small_disk: Path) -> None:
    async with running(small_disk) as broker:
        absent, _ = await Probe.connect(broker.port, Connect("absent", clean_start=False, properties=KEEPS))
        await absent.subscribe(SubscribeRequest("t", 1))
        await absent.drop()
        present, _ = await Probe.connect(broker.port, Connect("present"))
        await present.subscribe("u")
        publisher, _ = await Probe.connect(broker.port, Connect("p"))
        ballast = fill(small_disk, leave=2 << 20)
        kept = await publish_until_unanswered(publisher)
        assert kept
        other, _ = await Probe.connect(broker.port, Connect("other"))
        other.publish("u", b"passing")
        assert (await present.expect(Publish)).payload == b"passing"
        other.publish("t", b"refused", 1)
        assert (await other.expect(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
        ballast.unlink()
        for _ in range(40):
            await asyncio.sleep(0.25)
            other.publish("t", b"after", 1)
            if (await other.expect(Puback)).reason != ReasonCode.QUOTA_EXCEEDED:
                break
        else:
            raise AssertionError("room again, but still refusing")
        for probe in (present, publisher, other):
            await probe.drop()
    async with running(small_disk) as broker:
        absent, connack = await Probe.connect(broker.port, Connect("absent", clean_start=False, properties=KEEPS))
        assert connack.session_present
        got: list[bytes] = []
        while not got or got[-1] != b"after":
            event = await absent.expect(Publish)
            got.append(event.payload)
            absent.send(Puback(event.packet_id))
        assert got[: len(kept)] == kept
        await absent.drop()
