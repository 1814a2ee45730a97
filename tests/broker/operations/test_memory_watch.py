"""What a broker refuses at each level of memory, with a machine whose memory is set by hand."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from tests.broker.federated import until
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.operations.memory_watch import SHARE
from geomq.broker.platform import Platform
from geomq.broker.server import Broker
from geomq.broker.state.budget import BUFFER_BYTES, FEW_SUBSCRIPTIONS, QUEUE_BYTES, SHORT_OF_MEMORY
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311

pytestmark = pytest.mark.anyio

LIMIT = 1_000_000_000
KEPT = Properties(session_expiry_interval=1_000)


class Tight:
    """A broker and how full its memory is."""

    def __init__(self, limits: Limits) -> None:
        self.occupied = self.available = LIMIT // 2
        self.given_back = 0
        config = Config(
            listeners=(Listener(host="127.0.0.1", port=0),),
            persistence=Persistence(enabled=False),
            metrics=Metrics(sys_interval_s=0),
            limits=limits,
        )
        platform = Platform(
            resident_bytes=lambda: self.occupied, available_bytes=lambda: self.available, give_back=self._give_back
        )
        self.broker = Broker(config, platform=platform)

    def _give_back(self) -> None:
        self.given_back += 1

    def occupy(self, percent: float) -> None:
        self.occupied = int(LIMIT * percent / 100)
        self.broker._memory.look()


@pytest.fixture
async def tight() -> AsyncIterator[Tight]:
    made = Tight(Limits(memory_bytes_max=LIMIT))
    async with made.broker:
        yield made
        await drop_all()


async def test_new_clients_are_refused_first_and_those_with_a_session_come_in(tight: Tight) -> None:
    kept = await client(tight.broker, "kept", properties=KEPT)
    await kept.drop()
    tight.occupy(81)
    stranger, connack = await Probe.connect(tight.broker.port, Connect("stranger", V5))
    assert connack.reason == ReasonCode.SERVER_BUSY
    assert connack.properties.reason_string == SHORT_OF_MEMORY
    _, connack = await Probe.connect(tight.broker.port, Connect("old", V311))
    assert connack.reason != ReasonCode.SUCCESS
    assert tight.broker.core.counts.memory_refused == 2
    _, connack = await Probe.connect(tight.broker.port, Connect("kept", V5, clean_start=False, properties=KEPT))
    assert connack.session_present
    tight.occupy(50)
    await stranger.drop()
    await client(tight.broker, "stranger")


async def test_who_finishes_no_packet_for_seconds_is_sent_away_when_slow_readers_are_shed(tight: Tight) -> None:
    slow, canary = await client(tight.broker, "slow"), await client(tight.broker, "canary")
    packet = encode(Publish("t", bytes(4 * BUFFER_BYTES), 1, packet_id=1), V5)
    slow.send_bytes(packet[: 3 * BUFFER_BYTES])
    connection = tight.broker.core.clients["slow"].connection
    await until(lambda: connection._reassembly is not None and connection._reassembly.size == 3 * BUFFER_BYTES)  # type: ignore[union-attr]
    for _ in range(10):
        tight.broker.parts.handlers.check_alive()
    tight.occupy(86)
    for _ in range(10):
        tight.broker.parts.handlers.check_alive()
    farewell = await slow.expect(Disconnect)
    assert farewell.reason == ReasonCode.QUOTA_EXCEEDED
    assert farewell.properties.reason_string == SHORT_OF_MEMORY
    assert tight.broker.core.counts.memory_disconnected == 1
    canary.publish("t", b"", 1)
    await canary.expect(Puback)


async def test_a_large_packet_that_waits_for_memory_goes_on_when_there_is_some(tight: Tight) -> None:
    tight.occupy(86)
    tight.occupied = LIMIT // 2
    known = Properties(session_expiry_interval=5)
    tight.broker._memory.look()
    sender = await client(tight.broker, "sender", properties=known)
    tight.occupy(86)
    packet = encode(Publish("t", bytes(1_000_000), 1, packet_id=1), V5)
    sender.send_bytes(packet)
    await until(lambda: bool(tight.broker.parts.handlers._held))
    tight.occupy(50)
    assert (await sender.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS


async def test_nothing_grows_beyond_what_there_is(tight: Tight) -> None:
    probe, absent = await client(tight.broker, "c"), await client(tight.broker, "absent", properties=KEPT)
    await absent.subscribe(SubscribeRequest("q", 1))
    await absent.drop()
    probe.publish("r/there", b"something", 1, retain=True)
    await probe.expect(Puback)
    tight.occupy(91)
    probe.publish("r/new", b"x", 1, retain=True)
    refused = await probe.expect(Puback)
    assert (refused.reason, refused.properties.reason_string) == (ReasonCode.QUOTA_EXCEEDED, SHORT_OF_MEMORY)
    for payload in (b"smaller", b""):
        probe.publish("r/there", payload, 1, retain=True)
        assert (await probe.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS
    probe.publish("$geo/fence/f", b"CIRCLE(1 2, 3 km)", 1)
    assert (await probe.expect(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
    wanted = [f"s/{number}" for number in range(FEW_SUBSCRIPTIONS + 1)]
    reasons = (await probe.subscribe(*wanted)).reasons
    assert reasons == (ReasonCode.GRANTED_QOS_0,) * FEW_SUBSCRIPTIONS + (ReasonCode.QUOTA_EXCEEDED,)
    assert (await probe.subscribe(wanted[0])).reasons == (ReasonCode.GRANTED_QOS_0,)
    for _ in range(3):
        probe.publish("q", bytes(QUEUE_BYTES // 2 + 1), 1)
        await probe.expect(Puback)
    assert tight.broker.core.clients["absent"].session.pending == 1
    assert tight.broker.core.counts.events_dropped == 2


async def test_publishers_of_what_would_be_kept_are_slowed_and_refused_last(tight: Tight) -> None:
    probe, old = await client(tight.broker, "c"), await client(tight.broker, "old", V311)
    await probe.subscribe("t")
    tight.occupy(96)
    assert tight.broker.view.unwell() == SHORT_OF_MEMORY
    begin = tight.broker.core.loop.time()
    probe.publish("t", b"1", 1)
    probe.publish("t", b"0")
    refused = await probe.expect(Puback)
    assert (refused.reason, refused.properties.reason_string) == (ReasonCode.QUOTA_EXCEEDED, SHORT_OF_MEMORY)
    assert tight.broker.core.loop.time() - begin > 0.9
    assert (await probe.expect(Publish)).payload == b"0"
    old.publish("t", b"1", 1)
    with pytest.raises(Closed):
        await old.receive()
    assert (await probe.subscribe("one/more")).reasons == (ReasonCode.QUOTA_EXCEEDED,)
    tight.occupy(50)
    assert tight.broker.view.unwell() is None
    probe.publish("t", b"2", 1)
    assert {type(await probe.receive()), type(await probe.receive())} == {Puback, Publish}


async def test_the_log_says_what_is_shed_and_what_holds_most(tight: Tight, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    probe = await client(tight.broker, "c")
    await probe.subscribe(*[f"a/{number}" for number in range(100)])
    tight.occupy(91)
    (record,) = [each for each in caplog.records if each.message == "memory runs short"]
    assert record.levelno == logging.WARNING
    said = vars(record)
    assert (said["sheds"], said["percent"], said["limit"]) == ("growth", 90, LIMIT)
    assert said["most"].startswith("subscriptions=")
    tight.occupy(50)
    assert [each for each in caplog.records if each.message == "there is enough memory again"]


async def test_what_is_held_is_known_by_kind_and_gone_with_the_client(tight: Tight) -> None:
    before = dict(tight.broker._memory.held())
    probe = await client(tight.broker, "c")
    await probe.subscribe("a/b/c", "$geo/error", "$share/g/a")
    probe.publish("r", bytes(1_000), retain=True)
    probe.publish("r", b"", 1, retain=True)
    await probe.expect(Puback)
    held = tight.broker._memory.held()
    grown = {kind for kind, size in held.items() if size > before[kind]}
    assert grown == {"sessions", "connections", "subscriptions"}
    assert tight.broker.view.gauges()["subscriptions"] == 3
    await probe.drop()
    await until(lambda: not tight.broker.core.clients)
    assert dict(tight.broker._memory.held()) == before


async def test_freed_memory_is_given_back_while_it_runs_short(tight: Tight) -> None:
    probe = await client(tight.broker, "c")
    tight.broker.core.filters.add(300_000, 300_000)
    tight.occupy(97)
    tight.broker.core.filters.add(-130_000, -130_000)
    tight.occupy(97)
    assert tight.broker.core.budget.sheds
    assert tight.given_back == 1
    tight.occupy(96.9)
    assert tight.given_back == 1
    await probe.drop()


async def test_without_a_setting_it_is_a_share_of_what_there_is() -> None:
    made = Tight(Limits())
    async with made.broker as broker:
        assert broker.core.budget.limit == int(made.available * SHARE)
        made.available *= 2
        broker.reload(broker.core.config)
        assert broker.core.budget.limit == int(made.available * SHARE)


async def test_it_is_looked_again_and_again(tight: Tight) -> None:
    tight.occupied = LIMIT
    async with asyncio.timeout(10):
        while not tight.broker.core.budget.sheds:
            await asyncio.sleep(0.01)
    _, connack = await Probe.connect(tight.broker.port, Connect("late", V5))
    assert isinstance(connack, Connack)
    assert connack.reason == ReasonCode.SERVER_BUSY
