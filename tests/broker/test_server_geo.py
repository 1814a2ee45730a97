"""Geo-context through a whole broker, for both versions, against the one rule of delivery."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.broker.probes import Probe, drop_all

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.geo import Circle, Location, fence_text, location_text
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest, Unsubscribe
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311

pytestmark = pytest.mark.anyio

CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
    limits=Limits(named_fences_per_client_max=3),
)
BERLIN, POTSDAM, PARIS = Location(52.52, 13.405), Location(52.39, 13.06), Location(48.857, 2.352)
AROUND_BERLIN = fence_text(Circle(BERLIN, 50_000.0))


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        await drop_all()


async def _client(broker: Broker, name: str, version: int = V5, at: Location | None = None) -> Probe:
    properties = Properties()
    if at is not None and version == V5:
        properties = Properties(user_properties=(("geo-location", location_text(at)),))
    probe, _ = await Probe.connect(broker.port, Connect(name, version, properties=properties))
    if at is not None and version == V311:
        await _move(probe, at)
    return probe


async def _move(probe: Probe, at: Location | None) -> None:
    packet_id = probe.publish("$geo/location", b"" if at is None else location_text(at).encode(), 1)
    assert (await probe.expect(Puback)).packet_id == packet_id


def _fenced(text: str) -> Properties:
    return Properties(user_properties=(("geo-fence", text),))


async def test_orders_to_the_broker_are_not_counted_as_events(broker: Broker) -> None:
    probe = await _client(broker, "probe")
    for topic, payload in (
        ("$geo/location", location_text(PARIS).encode()),
        ("$geo/fence/home", AROUND_BERLIN.encode()),
        ("$geo/to/home/news", b"an event"),
        ("news", b"another"),
    ):
        probe.publish(topic, payload, 1)
        await probe.expect(Puback)
    counts = broker.core.counts
    assert (counts.events_received, counts.other_publishes, counts.location_updates) == (2, 2, 1)


@pytest.mark.parametrize("version", [V311, V5])
async def test_an_event_with_a_fence_reaches_only_those_inside(broker: Broker, version: int) -> None:
    near = await _client(broker, "near", version, POTSDAM)
    far = await _client(broker, "far", version, PARIS)
    nowhere = await _client(broker, "nowhere", version)
    for probe in (near, far, nowhere):
        await probe.subscribe("alert")
    p = await _client(broker, "p", version, BERLIN)
    p.publish("$geo/fence/here", AROUND_BERLIN.encode(), 1)
    await p.expect(Puback)
    p.publish("$geo/to/here/alert", b"fire")
    if version == V5:
        p.publish("alert", b"fire", properties=_fenced(AROUND_BERLIN))
    p.publish("alert", b"all")
    got = [await near.expect(Publish) for _ in range(3 if version == V5 else 2)]
    assert {packet.topic for packet in got} == {"alert"}
    assert got[-1].payload == b"all"
    for probe in (far, nowhere):
        assert (await probe.expect(Publish)).payload == b"all"
        assert await probe.silent()


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_subscription_with_a_fence_hears_only_publishers_inside(broker: Broker, version: int) -> None:
    s = await _client(broker, "s", version)
    s.publish("$geo/fence/home", AROUND_BERLIN.encode(), 1)
    await s.expect(Puback)
    assert (await s.subscribe("$geo/from/home/t/#")).reasons == (ReasonCode.GRANTED_QOS_0,)
    p = await _client(broker, "p", version)
    p.publish("t/1", b"no place")
    await _move(p, PARIS)
    p.publish("t/1", b"paris")
    await _move(p, POTSDAM)
    p.publish("t/1", b"potsdam")
    got = await s.expect(Publish)
    assert (got.topic, got.payload) == ("t/1", b"potsdam")
    assert await s.silent()


async def test_the_fence_of_a_subscription_can_be_changed_and_ended(broker: Broker) -> None:
    s, p = await _client(broker, "s"), await _client(broker, "p", at=PARIS)
    await s.subscribe("t", properties=_fenced(AROUND_BERLIN))
    p.publish("t", b"1")
    await s.subscribe("t")
    p.publish("t", b"2")
    assert (await s.expect(Publish)).payload == b"2"
    await s.subscribe("t", properties=_fenced(fence_text(Circle(PARIS, 1_000.0))))
    p.publish("t", b"3")
    assert (await s.expect(Publish)).payload == b"3"
    assert await s.silent()


async def test_redefining_a_named_fence_moves_its_subscriptions(broker: Broker) -> None:
    s, p = await _client(broker, "s"), await _client(broker, "p", at=PARIS)
    for fence, expected in ((Circle(BERLIN, 1_000.0), False), (Circle(PARIS, 1_000.0), True)):
        s.publish("$geo/fence/f", fence_text(fence).encode(), 1)
        await s.expect(Puback)
        if not expected:
            await s.subscribe("$geo/from/f/t", "t/other")
        p.publish("t", b"x")
        assert await s.silent(0.1) is not expected
    s.publish("$geo/fence/f", b"", 1)
    assert (await _ack_after_events(s)).reason == ReasonCode.PAYLOAD_FORMAT_INVALID
    s.send(Unsubscribe(9, ("$geo/from/f/t",)))


async def _ack_after_events(probe: Probe) -> Puback:
    while True:
        packet = await probe.receive()
        if isinstance(packet, Puback):
            return packet


async def test_plain_and_fenced_subscriptions_to_one_filter_live_side_by_side(broker: Broker) -> None:
    s, p = await _client(broker, "s"), await _client(broker, "p", at=PARIS)
    s.publish("$geo/fence/f", AROUND_BERLIN.encode())
    await s.subscribe(SubscribeRequest("$geo/from/f/t", 1), SubscribeRequest("$share/g/$geo/from/f/t", 0))
    p.publish("t", b"far", 1)
    assert await s.silent()
    await s.subscribe(SubscribeRequest("t", 0))
    p.publish("t", b"both", 1)
    assert (await s.expect(Publish)).qos == 0
    await _ack_after_events(p)
    await _ack_after_events(p)
    await _move(p, BERLIN)
    p.publish("t", b"inside", 1)
    got = [await s.expect(Publish) for _ in range(2)]
    assert sorted(packet.qos for packet in got) == [0, 1]
    s.send(Unsubscribe(9, ("$geo/from/f/t", "t", "$share/g/$geo/from/f/t")))
    await s.receive()
    p.publish("t", b"none", 1)
    assert await s.silent()


@pytest.mark.parametrize("version", [V311, V5])
async def test_bad_geometry_is_named_and_the_connection_lives(broker: Broker, version: int) -> None:
    c = await _client(broker, "c", version)
    await c.subscribe(SubscribeRequest("$geo/error", 0))
    for topic, payload in (
        ("$geo/location", b"91,0"),
        ("$geo/location", b'{"_type":"location","lat":"x"}'),
        ("$geo/location", b"\xff\xfe"),
        ("$geo/fence/x", b"POLYGON((0 0, 1 1"),
        ("$geo/to/unknown/t", b"x"),
    ):
        c.publish(topic, payload, 1)
        ack = await c.expect(Puback)
        if version == V5:
            assert ack.reason == ReasonCode.PAYLOAD_FORMAT_INVALID
            assert ack.properties.reason_string
        else:
            assert (await c.expect(Publish)).topic == "$geo/error"
    c.publish("$geo/location", b"x")
    assert (await c.expect(Publish)).topic == "$geo/error"
    c.publish("$geo/nonsense", b"x", 1)
    assert (await c.expect(Puback)).reason == (ReasonCode.TOPIC_NAME_INVALID if version == V5 else ReasonCode.SUCCESS)
    suback = await c.subscribe("$geo/from/none/t", "$geo/from/x", "$share/g/$geo/enter/x")
    assert all(reason >= 0x80 for reason in suback.reasons)
    await _move(c, BERLIN)


async def test_a_bad_fence_on_subscribe_and_publish_is_refused(broker: Broker) -> None:
    c = await _client(broker, "c")
    suback = await c.subscribe("t", properties=_fenced("nonsense"))
    assert suback.reasons == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert suback.properties.reason_string
    c.publish("t", b"", 1, properties=_fenced("nonsense"))
    assert (await c.expect(Puback)).reason == ReasonCode.PAYLOAD_FORMAT_INVALID


async def test_named_fences_are_bounded(broker: Broker) -> None:
    c = await _client(broker, "c")
    for number in range(4):
        c.publish(f"$geo/fence/{number}", AROUND_BERLIN.encode(), 1)
        reason = (await c.expect(Puback)).reason
        assert (reason == ReasonCode.SUCCESS or reason == ReasonCode.NO_MATCHING_SUBSCRIBERS) == (number < 3)


async def test_crossing_an_own_named_fence_is_told(broker: Broker) -> None:
    c, other = await _client(broker, "c", V311), await _client(broker, "other", V311)
    for probe in (c, other):
        await probe.subscribe("$geo/enter/#", "$geo/leave/#")
    c.publish("$geo/fence/home", AROUND_BERLIN.encode())
    c.publish("$geo/location", location_text(PARIS).encode())
    c.publish("$geo/location", location_text(POTSDAM).encode())
    entered = await c.expect(Publish)
    assert (entered.topic, entered.payload) == ("$geo/enter/home", location_text(POTSDAM).encode())
    c.publish("$geo/location", location_text(BERLIN).encode())
    c.publish("$geo/location", b"")
    assert (await c.expect(Publish)).topic == "$geo/leave/home"
    assert await other.silent()


async def test_a_retained_event_with_a_fence_comes_on_entry_once(broker: Broker) -> None:
    p, s = await _client(broker, "p"), await _client(broker, "s", at=PARIS)
    p.publish("news", b"berlin", 1, retain=True, properties=_fenced(AROUND_BERLIN))
    await p.expect(Puback)
    await s.subscribe("news")
    assert await s.silent()
    s.publish("$geo/location", location_text(POTSDAM).encode())
    got = await s.expect(Publish)
    assert (got.payload, got.retain) == (b"berlin", True)
    s.publish("$geo/location", location_text(BERLIN).encode())
    assert await s.silent()
    s.publish("$geo/location", location_text(PARIS).encode())
    s.publish("$geo/location", location_text(BERLIN).encode())
    assert (await s.expect(Publish)).payload == b"berlin"
    await s.subscribe("news")
    assert (await s.expect(Publish)).payload == b"berlin"


async def test_owntracks_messages_move_their_sender_and_are_delivered(broker: Broker) -> None:
    phone, s = await _client(broker, "phone", V311), await _client(broker, "s", V311)
    await s.subscribe("owntracks/#")
    phone.publish("owntracks/anna/phone", b'{"_type":"location","lat":52.52,"lon":13.405,"tst":1,"batt":50}')
    await s.expect(Publish)
    assert broker.core.clients["phone"].location == BERLIN
    phone.publish("owntracks/anna/phone", b'{"_type":"encrypted","data":"x"}')
    phone.publish("owntracks/anna/phone", b"not json")
    await s.expect(Publish)
    await s.expect(Publish)
    assert broker.core.clients["phone"].location == BERLIN


async def test_random_traffic_is_delivered_exactly_by_the_rule(broker: Broker) -> None:
    rng = random.Random(7)
    places = [Location(rng.uniform(50, 51), rng.uniform(8, 9)) for _ in range(12)]
    probes = [await _client(broker, f"c{number}") for number in range(8)]
    at: list[Location | None] = [None] * 8
    fences: list[Circle | None] = [None] * 8
    for number, probe in enumerate(probes):
        fences[number] = Circle(rng.choice(places), rng.uniform(5_000, 60_000)) if rng.random() < 0.7 else None
        fence = fences[number]
        await probe.subscribe("t", properties=Properties() if fence is None else _fenced(fence_text(fence)))
    for _ in range(80):
        sender = rng.randrange(8)
        if rng.random() < 0.5:
            at[sender] = rng.choice([*places, None])
            await _move_quietly(probes[sender], at[sender])
        fence = Circle(rng.choice(places), rng.uniform(5_000, 60_000)) if rng.random() < 0.5 else None
        place = at[sender]
        probes[sender].publish("t", b"x", properties=Properties() if fence is None else _fenced(fence_text(fence)))
        await asyncio.sleep(0.01)
        for number, probe in enumerate(probes):
            mine, here = fences[number], at[number]
            wanted = (mine is None or (place is not None and mine.contains(place))) and (
                fence is None or (here is not None and fence.contains(here))
            )
            if wanted:
                await probe.expect(Publish)
            else:
                assert await probe.silent(0.002)


async def _move_quietly(probe: Probe, at: Location | None) -> None:
    await _move(probe, at)
