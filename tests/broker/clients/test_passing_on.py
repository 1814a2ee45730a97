"""What a member of a share group had not received when its session ended, goes to another: real brokers."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import configs, federation, until
from tests.broker.mosquitto_cloud import join
from tests.broker.probes import client, drop_all
from tests.broker.test_shared_groups import members_known
from tests.probe import Probe

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.broker.state.drops import Drop, Reason
from geomq.mqtt.codec.packets import Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio

CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
)
LASTING = Properties(session_expiry_interval=300)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        await drop_all()


async def member(broker: Broker, name: str, properties: Properties = LASTING, qos: int = 2) -> Probe:
    made = await client(broker, name, properties=properties)
    await made.subscribe(SubscribeRequest("$share/crew/t", qos))
    return made


async def away(broker: Broker, probe: Probe, name: str) -> None:
    await probe.drop()
    await until(lambda: broker.core.clients[name].connection is None)


async def end(broker: Broker, name: str) -> None:
    """Its client begins anew."""
    async with await client(broker, name):
        pass


async def publish(broker: Broker, count: int, qos: int = 1, **more: Any) -> None:
    async with await client(broker, "publisher") as publisher:
        for number in range(count):
            publisher.publish("t", b"%d" % number, qos, **more)
            if qos == 1:
                await publisher.expect(Puback)
            else:
                answer = await publisher.expect(Pubrec)
                publisher.send(Pubrel(answer.packet_id))
                await publisher.expect(Pubcomp)


async def take(probe: Probe, count: int) -> list[bytes]:
    """So many messages, acknowledged."""
    got: list[bytes] = []
    completed = 0
    while len(got) < count or completed < count:
        packet = await probe.receive()
        if isinstance(packet, Pubrel):
            probe.send(Pubcomp(packet.packet_id))
            completed += 1
            continue
        assert isinstance(packet, Publish)
        assert not packet.dup
        got.append(packet.payload)
        completed += packet.qos == 1
        probe.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
    return got


def lost(broker: Broker) -> int:
    return dict(broker.core.drops.totals()).get(Drop(Reason.SESSION_ENDED, "session"), 0)


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_never_sent_goes_to_another_member(broker: Broker, qos: int) -> None:
    await away(broker, await member(broker, "first"), "first")
    await publish(broker, 5, qos)
    second = await member(broker, "second")
    assert await second.silent()
    await end(broker, "first")
    assert await take(second, 5) == [b"%d" % number for number in range(5)]
    assert lost(broker) == 0


async def test_what_was_sent_but_not_acknowledged_goes_on_at_qos_1_only(broker: Broker) -> None:
    first = await member(broker, "first")
    await publish(broker, 2, 1)
    await publish(broker, 2, 2)
    for _ in range(4):
        await first.expect(Publish)
    await away(broker, first, "first")
    second = await member(broker, "second")
    await end(broker, "first")
    assert await take(second, 2) == [b"0", b"1"]
    assert await second.silent()
    assert lost(broker) == 2  # who had those of QoS 2 may have had them: nobody else must


async def test_a_session_that_ends_with_its_connection_leaves_what_it_had_not_taken(broker: Broker) -> None:
    first = await member(broker, "first", Properties(receive_maximum=1))
    await publish(broker, 3)
    second = await member(broker, "second")
    await first.drop()
    assert await take(second, 3) == [b"0", b"1", b"2"]


async def test_without_another_member_it_is_dropped_and_counted(broker: Broker) -> None:
    await away(broker, await member(broker, "first"), "first")
    await publish(broker, 3)
    await end(broker, "first")
    assert lost(broker) == 3
    assert await (await member(broker, "second")).silent()


async def test_own_subscriptions_are_nobody_else_s(broker: Broker) -> None:
    first = await member(broker, "first")
    await first.subscribe(SubscribeRequest("u", 1))
    await away(broker, first, "first")
    async with await client(broker, "publisher") as publisher:
        publisher.publish("u", b"mine", 1)
        await publisher.expect(Puback)
    second = await member(broker, "second")
    await second.subscribe(SubscribeRequest("u", 1))
    await end(broker, "first")
    assert await second.silent()
    assert lost(broker) == 1


async def test_only_members_that_the_event_is_meant_for_get_it(broker: Broker) -> None:
    first = await member(broker, "first")
    await away(broker, first, "first")
    meant = Properties(user_properties=(("geo-fence", "geo:48.1,11.5;u=5000"), ("geo-location", "48.1,11.5")))
    first, _ = await Probe.connect(
        broker.port,
        Connect(
            "first",
            V5,
            clean_start=False,
            properties=Properties(session_expiry_interval=300, user_properties=(("geo-location", "48.1,11.5"),)),
        ),
    )
    await away(broker, first, "first")
    await publish(broker, 2, properties=meant)
    outside = await member(broker, "outside")
    inside = await client(
        broker,
        "inside",
        properties=Properties(session_expiry_interval=300, user_properties=(("geo-location", "48.1,11.49"),)),
    )
    await inside.subscribe(SubscribeRequest("$share/crew/t", 1))
    assert broker.core.clients["first"].session.pending == 2
    await end(broker, "first")
    assert await take(inside, 2) == [b"0", b"1"]
    assert await outside.silent()


async def test_it_survives_a_restart_with_the_session_and_without(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, persistence=Persistence(path=str(tmp_path / "store")))
    async with Broker(config) as broker:
        await away(broker, await member(broker, "first"), "first")
        await publish(broker, 4)
    async with Broker(config) as broker:
        await away(broker, await member(broker, "second"), "second")
        await end(broker, "first")
        assert broker.core.clients["second"].session.pending == 4
    async with Broker(config) as broker:
        second, _ = await Probe.connect(broker.port, Connect("second", V5, clean_start=False, properties=LASTING))
        assert await take(second, 4) == [b"0", b"1", b"2", b"3"]
        await drop_all()
        await second.drop()


@pytest.mark.parametrize("strategy", ["disgb_events", "flood_events"])
async def test_a_member_at_another_broker_gets_it(strategy: str) -> None:
    async with federation(configs(strategy, brokers=3)) as brokers, AsyncExitStack() as stack:
        paris = brokers["paris"]
        await away(paris, await member(paris, "first"), "first")
        await members_known(brokers, 1)
        publisher = await join(stack, brokers["columbus"].port, "p")
        for number in range(3):
            await publisher.client.publish("t", b"%d" % number, qos=1)
        await until(_pending(paris, 3))
        elsewhere = await join(stack, brokers["frankfurt"].port, "second")
        await elsewhere.client.subscribe("$share/crew/t", qos=1)
        await members_known(brokers, 2)
        await end(paris, "first")
        await until(lambda: len(elsewhere.got) == 3)
        assert list(elsewhere.got) == [b"0", b"1", b"2"]
        await drop_all()


def _pending(broker: Broker, count: int) -> Callable[[], bool]:
    return lambda: broker.core.clients["first"].session.pending == count
