"""Details of events, for subscribers that ask: told by the broker alone, kept with the session."""

import math
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.probe import Probe

from geomq.broker.clients.details import told
from geomq.broker.config.geo import Geo
from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics
from geomq.broker.server import Broker
from geomq.geo import Circle, Location, location_text
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V311
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId

pytestmark = pytest.mark.anyio

BERLIN = Location(52.52, 13.405)
ASKING = (("geo-details", "1"),)
ALL = ("event", "time", "broker", "publisher", "location", "fence")


def config(folder: Path, details: tuple[str, ...] | None = None) -> Config:
    return Config(
        broker=BrokerSettings(name="home", data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        metrics=Metrics(sys_interval_s=0),
        geo=Geo() if details is None else Geo(details=details),  # type: ignore[arg-type]
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(config(tmp_path, ALL)) as running:
        yield running


async def asking(broker: Broker, name: str = "asking", *, waiting: int = 0) -> Probe:
    properties = Properties(session_expiry_interval=1000, user_properties=ASKING)
    probe, connack = await Probe.connect(broker.port, Connect(name, clean_start=False, properties=properties))
    assert connack.properties.user("geo-details") is not None or not broker.core.config.geo.details
    assert connack.properties.user("geo-waiting") in (str(waiting), None)
    return probe


async def publish(broker: Broker, properties: Properties = NO_PROPERTIES, version: int = 5, qos: int = 1) -> None:
    properties_of_client = Properties(user_properties=(("geo-location", location_text(BERLIN)),))
    connect = Connect("sensor", version, properties=properties_of_client if version == 5 else NO_PROPERTIES)
    probe, _ = await Probe.connect(broker.port, connect)
    async with probe:
        probe.publish("t", b"hello", qos, properties=properties)
        if qos:
            await probe.expect(Puback)


async def test_who_asks_is_told(broker: Broker) -> None:
    async with await asking(broker) as probe:
        await probe.subscribe(SubscribeRequest("t", 1))
        before = time.time() * 1000 - 1
        await publish(broker, Properties(user_properties=(("geo-fence", "geo:1,2;u=30"), ("colour", "red"))))
        assert await probe.silent()
        await publish(broker, Properties(user_properties=(("colour", "red"),)))
        got = dict((await probe.expect(Publish)).properties.user_properties)
        assert got["colour"] == "red"
        assert got["geo-event"].startswith("home:")
        assert before <= int(got["geo-time"]) <= time.time() * 1000
        assert got["geo-broker"] == "home"
        assert got["geo-publisher"] == "sensor"
        assert got["geo-location"] == location_text(BERLIN)
        assert "geo-fence" not in got


async def test_who_does_not_ask_gets_what_was_published(broker: Broker) -> None:
    probe, connack = await Probe.connect(broker.port, Connect("plain"))
    async with probe:
        assert connack.properties.user("geo-details") is None
        await probe.subscribe(SubscribeRequest("t", 1))
        await publish(broker)
        assert (await probe.expect(Publish)).properties == NO_PROPERTIES


async def test_events_at_qos_0_are_told_too_and_do_not_take_the_short_way(broker: Broker) -> None:
    async with await asking(broker) as probe:
        await probe.subscribe(SubscribeRequest("t", 1))
        ids = set()
        for _ in range(3):
            await publish(broker, version=V311, qos=0)
            ids.add((await probe.expect(Publish)).properties.user("geo-event"))
        assert len(ids) == 3
        assert None not in ids


async def test_what_waits_for_an_absent_client_keeps_its_details_over_a_restart(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        async with await asking(broker) as probe:
            await probe.subscribe(SubscribeRequest("t", 1))
            await probe.disconnect()
        await publish(broker)
    async with Broker(config(tmp_path)) as broker:
        await publish(broker)
        async with await asking(broker, waiting=2) as probe:
            first, second = await probe.expect(Publish), await probe.expect(Publish)
            ids = [each.properties.user("geo-event") for each in (first, second)]
            assert None not in ids
            assert len(set(ids)) == 2


async def test_the_publisher_is_named_only_if_the_config_says_so(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, await asking(broker) as probe:
        await probe.subscribe(SubscribeRequest("t", 1))
        await publish(broker, Properties(user_properties=(("geo-publisher", "forged"),)))
        assert (await probe.expect(Publish)).properties.user("geo-publisher") is None


async def test_without_details_in_the_config_nobody_is_told(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, ())) as broker, await asking(broker) as probe:
        await probe.subscribe(SubscribeRequest("t", 1))
        await publish(broker)
        assert (await probe.expect(Publish)).properties == NO_PROPERTIES


def test_details_cannot_be_forged() -> None:
    forged = tuple((name, "forged") for name in ("geo-event", "geo-time", "geo-broker", "geo-publisher"))
    message = ApplicationMessage("t", properties=Properties(user_properties=(*forged, ("a", "b"))))
    event = Event(EventId(BrokerId("b"), 2, 3), "t", ClientId("bad\0voice"), BERLIN, Circle(BERLIN, 5.0), at_ms=7)
    assert told(message, None, ALL).properties.user_properties == (("a", "b"),)
    assert dict(told(message, event, ALL).properties.user_properties) == {
        "a": "b",
        "geo-event": "b:2:3",
        "geo-time": "7",
        "geo-broker": "b",
        "geo-location": "52.52,13.405",
        "geo-fence": "geo:52.52,13.405;u=5.0",
    }


def test_a_message_that_says_nothing_new_stays_the_same_object() -> None:
    message = ApplicationMessage("t", properties=Properties(user_properties=(("a", "b"),)))
    assert told(message, None, ALL) is message


async def test_a_fence_that_fits_no_property_is_left_out(tmp_path: Path) -> None:
    points = [f"{math.sin(at / 650):.6f} {math.cos(at / 650):.6f}" for at in range(4_000)]
    text = f"POLYGON (({', '.join([*points, points[0]])}))"
    limits = Limits(fence_vertices_max=5_000, fence_text_bytes_max=1_000_000)
    async with Broker(structs.replace(config(tmp_path), limits=limits)) as broker:
        client = await asking(broker)
        probe, _ = await Probe.connect(broker.port, Connect("p"))
        await client.subscribe("t")
        client.publish("$geo/location", b"0,0", 1)
        await client.expect(Puback)
        probe.publish("$geo/fence/f", text.encode(), 1)
        assert (await probe.expect(Puback)).reason == ReasonCode.SUCCESS
        probe.publish("$geo/to/f/t", b"x", 1)
        assert (await probe.expect(Puback)).reason == ReasonCode.SUCCESS
        names = [name for name, _ in (await client.expect(Publish)).properties.user_properties]
        assert "geo-event" in names
        assert "geo-fence" not in names
        await probe.drop()
        await client.drop()
