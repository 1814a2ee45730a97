"""Running a broker: its own topics, the admin's view, trouble with the disk, reload."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.broker.descriptors import no_descriptor_left
from tests.broker.mosquitto_cloud import mosquitto, needs_mosquitto
from tests.probe import Closed, Probe

from geomq.broker.config.recording import Log as LogSection
from geomq.broker.config.settings import Admin, BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.operations.sys_topics import SysTopics
from geomq.broker.server import Broker
from geomq.broker.storage.errors import StoreError, StoreFull
from geomq.errors import ConfigError
from geomq.mqtt.codec.packets import Connect, Disconnect, Puback, Publish, Pubrec, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V311

pytestmark = pytest.mark.anyio

COMMAND = (sys.executable, "-c", "from geomq.cli import main; main()")
KEEPS = Properties(session_expiry_interval=1000)


def _config(folder: Path, **sections: Any) -> Config:
    return Config(
        broker=BrokerSettings(data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=1),
        log=LogSection(level="error"),
        **sections,
    )


async def test_the_broker_tells_about_itself(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path)) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("c"))
        async with probe:
            await probe.subscribe("$SYS/broker/clients/connected", "$SYS/broker/version")
            values = {}
            for _ in range(3):
                packet = await probe.expect(Publish)
                values[packet.topic] = packet.payload
            assert values["$SYS/broker/clients/connected"] == b"1"
            assert values["$SYS/broker/version"].startswith(b"geomq version")


@needs_mosquitto
async def test_every_topic_that_mosquitto_tells_about_itself_is_there(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path)) as broker, mosquitto(tmp_path, "sys_interval 1") as other:
        told = [await _told(port, 53) for port in (other.port, broker.port)]
        theirs, ours = [{topic for topic in each if "/geo/" not in topic} for each in told]
        assert theirs - ours == set()
        assert len(theirs) == 53
        added = {"$SYS/broker/heap/current size", "$SYS/broker/memory/limit", "$SYS/broker/memory/shedding"}
        assert ours - theirs == added
        loads = [float(value) for topic, value in told[1].items() if "/load/" in topic]
        assert len(loads) == 27
        assert min(loads) >= 0


async def _told(port: int, count: int) -> dict[str, bytes]:
    probe, _ = await Probe.connect(port, Connect("watcher", V311))
    async with probe:
        await probe.subscribe("$SYS/#")
        found: dict[str, bytes] = {}
        while len(found) < count or not await probe.silent(0.2):
            packet = await probe.expect(Publish)
            found[packet.topic] = packet.payload
        return found


async def test_what_went_through_is_counted_as_mosquitto_does(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path)) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("c", V311))
        async with probe:
            await probe.subscribe("t", "$share/g/u")
            for qos in (0, 1) * 5:
                probe.publish("t", b"x" * 95, qos)
            for _ in range(15):
                await probe.receive()
            values = SysTopics(broker.core, broker.parts.publishing, broker.parts.retention).values()
            assert values["$SYS/broker/messages/received"] == "12"
            assert values["$SYS/broker/messages/sent"] == "17"
            assert values["$SYS/broker/publish/messages/sent"] == "10"
            assert values["$SYS/broker/publish/bytes/received"] == str(10 * 100 + 5 * 2)
            assert values["$SYS/broker/publish/bytes/sent"] == str(10 * 100)
            assert values["$SYS/broker/shared_subscriptions/count"] == "1"
            assert values["$SYS/broker/clients/maximum"] == "1"


async def test_the_broker_tells_about_itself_when_no_file_can_be_opened(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path)) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("c"))
        async with probe:
            await probe.subscribe("$SYS/broker/uptime")
            with no_descriptor_left():
                said = {(await probe.expect(Publish)).payload for _ in range(4)}
            assert len(said) >= 3


async def test_the_broker_starts_and_tells_about_itself_however_much_is_retained(tmp_path: Path) -> None:
    for limit in (100, 2):
        async with Broker(_config(tmp_path, limits=Limits(retained_messages_max=limit))) as broker:
            probe, _ = await Probe.connect(broker.port, Connect("a"))
            for number in range(5):
                probe.publish(f"kept/{number}", b"x", 1, retain=True)
                assert (await probe.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS
            probe.publish("kept/too-many", b"x", 1, retain=limit == 2)
            refused = (await probe.expect(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
            assert refused == (limit == 2)
            await probe.subscribe("$SYS/broker/version")
            assert (await probe.expect(Publish)).retain
            await probe.drop()


async def test_health_and_metrics_are_answered_however_many_ask_for_nothing(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path, admin=Admin(enabled=True, port=0))) as broker:
        idle = [await asyncio.open_connection("127.0.0.1", broker.admin_port) for _ in range(150)]
        for path in ("health", "metrics"):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.admin_port)
            writer.write(b"GET /%b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        for _, writer in idle:
            writer.close()


async def test_the_view_shows_clients_and_kicks_them(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path, admin=Admin(enabled=True, port=0))) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("c", properties=KEEPS))
        fenced = Properties(user_properties=(("geo-fence", "geo:1,2;u=30"),))
        probe.publish("$geo/location", b"1,2")
        probe.publish("$geo/fence/f", b"geo:1,2;u=30")
        await probe.subscribe(SubscribeRequest("a", 1), properties=fenced)
        view = broker.view
        client = view.client("c")
        assert client is not None
        assert (client.connected, client.location, client.fences) == (True, (1.0, 2.0), {"f": "geo:1.0,2.0;u=30.0"})
        (subscription,) = view.subscriptions("c")
        assert (subscription.topic_filter, subscription.qos, subscription.fence) == ("a", 1, "geo:1.0,2.0;u=30.0")
        assert list(view.subscriptions("nobody")) == []
        assert view.gauges()["connections"] == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.admin_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert b"geomq_events_received_total" in answer
        assert not view.kick("nobody", discard=True)
        assert view.kick("c", discard=False)
        assert (await probe.expect(Disconnect)).reason == ReasonCode.ADMINISTRATIVE_ACTION
        client = view.client("c")
        assert client is not None
        assert not client.connected
        assert view.kick("c", discard=True)
        assert view.client("c") is None
        await probe.drop()


async def test_a_full_disk_refuses_qos_1_and_lets_qos_0_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker(_config(tmp_path)) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s", properties=KEEPS))
        p, _ = await Probe.connect(broker.port, Connect("p"))
        old, _ = await Probe.connect(broker.port, Connect("old", V311))
        await s.subscribe(SubscribeRequest("t", 1))
        disk = broker.core.store._disk
        good = disk.write

        def full(writes: object) -> None:
            raise StoreFull("the disk is full")

        monkeypatch.setattr(disk, "write", full)
        p.publish("t", b"first", 1)
        assert await p.silent()
        p.publish("t", b"second", 1)
        refused = await p.expect(Puback)
        assert refused.reason == ReasonCode.QUOTA_EXCEEDED
        p.publish("t", b"zero")
        assert (await s.expect(Publish)).payload == b"zero"
        old.publish("t", b"third", 1)
        with pytest.raises(Closed):
            await old.receive()
        assert broker.view.unwell() == "the disk is full"
        monkeypatch.setattr(disk, "write", good)
        assert (await p.expect(Puback)).reason == ReasonCode.SUCCESS
        assert (await s.expect(Publish)).payload == b"first"
        for probe in (s, p, old):
            await probe.drop()


async def test_a_broken_store_stops_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(_config(tmp_path))
    await broker.start()
    s, _ = await Probe.connect(broker.port, Connect("s", properties=KEEPS))
    await s.subscribe(SubscribeRequest("t", 1))

    def broken(writes: object) -> None:
        raise StoreError("input/output error")

    monkeypatch.setattr(broker.core.store._disk, "write", broken)
    s.publish("t", b"x", 1)
    async with asyncio.timeout(60):
        assert await broker.wait_stopped() == 1
    assert not isinstance(await s.receive(), Puback)
    with pytest.raises(Closed):
        await s.receive()
    await s.drop()


async def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    async with Broker(_config(tmp_path / "one")) as broker:
        config = _config(tmp_path / "two")
        taken = Listener(host="127.0.0.1", port=broker.port)
        with pytest.raises(ConfigError, match="cannot listen on"):
            await Broker(Config(broker=config.broker, listeners=(taken,))).start()


async def test_hangup_reloads_and_terminate_ends(tmp_path: Path) -> None:
    config = tmp_path / "geomq.toml"
    text = '[[listeners]]\nhost = "127.0.0.1"\nport = 0\n[log]\nfile = "log"\n[limits]\nreceive_maximum = 7\n'
    config.write_text(text)
    process = await asyncio.create_subprocess_exec(*COMMAND, "broker", "-c", str(config))
    log = tmp_path / "log"
    try:
        port = int((await _line(log, "listening")).partition("port=")[2].split()[0])
        probe, connack = await Probe.connect(port, Connect("a"))
        assert connack.properties.receive_maximum == 7
        config.write_text(text.replace("7", "9"))
        process.send_signal(signal.SIGHUP)
        await _line(log, "reloaded")
        other, connack = await Probe.connect(port, Connect("b"))
        assert connack.properties.receive_maximum == 9
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        await probe.drop()
        await other.drop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_reload_holds_for_sessions_stores_and_topics_that_were_there_before(tmp_path: Path) -> None:
    before = _config(tmp_path)
    before = structs.replace(before, metrics=Metrics(sys_interval_s=0), limits=Limits(receive_maximum=1))
    async with Broker(before) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("a", clean_start=False, properties=KEEPS))
        probe.publish("t", b"x", 2)
        await probe.expect(Pubrec)
        await probe.drop()
        broker.reload(
            structs.replace(
                before,
                metrics=Metrics(sys_interval_s=1),
                limits=Limits(receive_maximum=9, retained_messages_max=100, topic_alias_maximum=50),
                persistence=Persistence(free_bytes_min=1 << 50),
            )
        )
        probe, connack = await Probe.connect(broker.port, Connect("a", clean_start=False, properties=KEEPS))
        assert (connack.properties.receive_maximum, connack.properties.topic_alias_maximum) == (9, 50)
        await probe.subscribe("$SYS/broker/version")
        assert (await probe.expect(Publish)).retain
        for number in range(99):
            probe.publish(f"kept/{number}", b"x", retain=True)
        probe.publish("t", b"x", properties=Properties(topic_alias=50))
        for _ in range(5):
            probe.publish("t", b"x", 2)
        reasons = [(await probe.expect(Pubrec)).reason for _ in range(5)]
        async with asyncio.timeout(60):
            while reasons[-1] != ReasonCode.QUOTA_EXCEEDED:
                await asyncio.sleep(0.05)
                probe.publish("t", b"x", 1)
                reasons.append((await probe.expect(Puback)).reason)
        assert broker.core.counts.retained_refused > 0
        await probe.drop()


async def _line(log: Path, word: str) -> str:
    async with asyncio.timeout(60):
        while True:
            for line in log.read_text().splitlines() if log.exists() else ():
                if word in line:
                    return line
            await asyncio.sleep(0.02)
