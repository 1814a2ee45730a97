"""Publishes that count once: repeats are acknowledged and go nowhere, also after a restart."""

from pathlib import Path

import pytest
from tests.probe import Probe

from geomq.broker.clients import once
from geomq.broker.clients.once import Writers
from geomq.broker.config.settings import BrokerSettings, Config, Listener, Metrics
from geomq.broker.server import Broker
from geomq.broker.storage.memory import MemoryStore
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode

pytestmark = pytest.mark.anyio


def config(folder: Path) -> Config:
    return Config(
        broker=BrokerSettings(data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        metrics=Metrics(sys_interval_s=0),
    )


async def publish(probe: Probe, text: str) -> ReasonCode:
    probe.publish("t", text.encode(), 1, properties=Properties(user_properties=(("geo-once", text),)))
    return (await probe.expect(Puback)).reason


async def test_a_repeat_is_acknowledged_and_goes_nowhere_even_after_a_restart(tmp_path: Path) -> None:
    keep = Properties(session_expiry_interval=100)
    async with Broker(config(tmp_path)) as broker:
        reader, _ = await Probe.connect(broker.port, Connect("reader", properties=keep))
        writer, _ = await Probe.connect(broker.port, Connect("writer"))
        await reader.subscribe(SubscribeRequest("t", 1))
        for text in ("w:1", "w:2", "w:1", "w:2", "v:1", "w:3"):
            assert await publish(writer, text) == ReasonCode.SUCCESS
        got = [(await reader.expect(Publish)).payload for _ in range(4)]
        assert got == [b"w:1", b"w:2", b"v:1", b"w:3"]
        assert broker.core.counts.events_repeated == 2
        await reader.drop()
        await writer.drop()
    async with Broker(config(tmp_path)) as broker:
        writer, _ = await Probe.connect(broker.port, Connect("writer"))
        await publish(writer, "w:3")
        assert broker.core.counts.events_repeated == 1
        await publish(writer, "w:4")
        assert broker.core.counts.events_repeated == 1
        await writer.drop()


async def test_what_is_refused_does_not_count(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        writer, _ = await Probe.connect(broker.port, Connect("writer"))
        async with writer:
            bad = Properties(user_properties=(("geo-once", "w:5"), ("geo-fence", "POINT (1 2)")))
            writer.publish("t", b"", 1, properties=bad)
            assert (await writer.expect(Puback)).reason == ReasonCode.PAYLOAD_FORMAT_INVALID
            await publish(writer, "w:5")
            assert broker.core.counts.events_repeated == 0


@pytest.mark.parametrize(
    "text", ["", ":", "w", "w:", ":5", "w:-1", "w:1.5", "w:99999999999999999999", "w:٣", "x" * 300 + ":1"]
)
def test_what_is_no_writer_and_number_repeats_nothing(text: str) -> None:
    writers = Writers(MemoryStore())
    writers.note(None, text)
    assert not writers.repeats(None, text)


def test_users_do_not_meet_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "WRITERS_MAX", 3)
    writers = Writers(MemoryStore())
    writers.note("alice", "w:7")
    assert writers.repeats("alice", "w:7")
    assert not writers.repeats("bob", "w:7")
    assert not writers.repeats(None, "w:7")
    for number in range(3):
        writers.note("bob", f"w{number}:1")
    assert writers.repeats("alice", "w:7")
    assert [writers.repeats("bob", f"w{number}:1") for number in range(3)] == [False, True, True]
    for name in ("carol", "dave", "eve"):
        writers.note(name, "w:1")
    assert sum(writers.repeats(name, "w:1") for name in ("alice", "carol", "dave", "eve")) == 3
