"""What lives for a while lives as long as it was told, whatever clocks show."""

import time
from dataclasses import replace as with_changes
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.federated import configs, until
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.settings import BrokerSettings, Config, Listener, Metrics, Persistence
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties

pytestmark = pytest.mark.anyio

HOUR_S, DAY_S = 3_600, 86_400
AN_HOUR = Properties(session_expiry_interval=HOUR_S)


class Wall:
    """A clock on the wall that somebody moves."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def __call__(self) -> float:
        return time.time() + self.ahead_s

    @property
    def platform(self) -> Platform:
        return with_changes(SYSTEM, wall_s=self)


def config(folder: Path) -> Config:
    return Config(
        broker=BrokerSettings(data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=0),
    )


async def leaves_something(broker: Broker) -> None:
    """A kept session that is away with an hour to live, a message that waits in it, and one that is retained."""
    s, _ = await Probe.connect(broker.port, Connect("s", properties=AN_HOUR))
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    await until(lambda: broker.core.clients["s"].connection is None)
    p = await client(broker, "p")
    for topic, retain in (("t", False), ("kept", True)):
        p.publish(topic, b"x", 1, retain=retain, properties=Properties(message_expiry_interval=HOUR_S))
        await p.expect(Puback)
    await p.disconnect()


async def finds_all(broker: Broker) -> None:
    s, connack = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=AN_HOUR))
    assert connack.session_present
    assert (await s.expect(Publish)).payload == b"x"
    await s.subscribe("kept")
    left_s = (await s.expect(Publish)).properties.message_expiry_interval
    assert left_s is not None
    assert HOUR_S - 60 <= left_s <= HOUR_S


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_clock_that_jumps_erases_nothing(tmp_path: Path, jump_s: float) -> None:
    wall = Wall()
    async with Broker(config(tmp_path), platform=wall.platform) as broker:
        await leaves_something(broker)
        wall.ahead_s = jump_s
        for _ in range(3):
            broker.parts.sweep()
        assert broker.core.counts.expired_sessions == 0
        shown = broker.view.client("s")
        assert shown is not None
        assert shown.expires_at == pytest.approx(wall() + HOUR_S, abs=60)
        await finds_all(broker)
        wall.ahead_s = 0.0
        broker.parts.sweep()
        await drop_all()


async def test_a_restart_with_a_wrong_clock_takes_off_no_more_than_the_settings_say(tmp_path: Path) -> None:
    wall, settings = Wall(), config(tmp_path)
    settings = replace(settings, persistence=replace(settings.persistence, away_s_max=30.0))
    async with Broker(settings, platform=wall.platform) as broker:
        await leaves_something(broker)
    for ahead_s in (DAY_S, -DAY_S, 0.0):
        wall.ahead_s = ahead_s
        async with Broker(settings, platform=wall.platform) as broker:
            broker.parts.sweep()
            session = broker.core.clients["s"].session
            assert session.expires_at is not None
            assert session.expires_at - broker.core.now_s() > HOUR_S - 120
    async with Broker(settings, platform=wall.platform) as broker:
        s, connack = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=AN_HOUR))
        assert connack.session_present
        assert (await s.expect(Publish)).payload == b"x"
        await drop_all()


async def test_time_that_passes_while_the_broker_is_away_counts(tmp_path: Path) -> None:
    wall, settings = Wall(), config(tmp_path)
    settings = replace(settings, persistence=replace(settings.persistence, away_s_max=DAY_S))
    async with Broker(settings, platform=wall.platform) as broker:
        await leaves_something(broker)
    wall.ahead_s = HOUR_S + 1
    async with Broker(settings, platform=wall.platform) as broker:
        broker.parts.sweep()
        assert broker.core.counts.expired_sessions == 1
        assert len(broker.parts.retention) == 0


@pytest.mark.parametrize("ahead_s", [-120.0, 120.0])
async def test_events_do_not_expire_on_their_way_because_clocks_differ(ahead_s: float) -> None:
    first, second = configs("disgb_events", brokers=2).values()
    async with (
        Broker(first, platform=Wall(ahead_s).platform) as here,
        Broker(second) as there,
    ):
        await until(lambda: here.linked and there.linked)
        s = await client(there, "s")
        await s.subscribe(SubscribeRequest("t", 1))
        p = await client(here, "p")
        for number in range(20):
            p.publish("t", b"%d" % number, 1, properties=Properties(message_expiry_interval=60))
            await p.expect(Puback)
        for number in range(20):
            got = await s.expect(Publish)
            s.send(Puback(got.packet_id))
            assert got.payload == b"%d" % number
            assert got.properties.message_expiry_interval is not None
            assert 30 <= got.properties.message_expiry_interval <= 60
        p.publish("kept", b"x", 1, retain=True, properties=Properties(message_expiry_interval=60))
        await p.expect(Puback)
        await until(lambda: len(there.parts.retention) == 1)
        await s.subscribe("kept")
        left_s = (await s.expect(Publish)).properties.message_expiry_interval
        assert left_s is not None
        assert 30 <= left_s <= 60
        assert here.core.counts.events_dropped == there.core.counts.events_dropped == 0
        await drop_all()
