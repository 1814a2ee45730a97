"""What one packet or one client may cost a whole broker."""

from collections.abc import AsyncIterator
from itertools import product

import pytest
from tests.broker.probes import client, drop_all

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Disconnect, Publish, Unsuback, Unsubscribe
from geomq.mqtt.codec.properties import REPEATED_MAX, Properties
from geomq.mqtt.codec.reasons import ReasonCode

pytestmark = pytest.mark.anyio

CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
    limits=Limits(wildcard_patterns_per_client_max=20),
)
PATTERNS = ["/".join(levels) for levels in product(("a", "+"), repeat=5)]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        await drop_all()


async def test_filters_of_one_client_have_so_many_arrangements_of_wildcards(broker: Broker) -> None:
    probe = await client(broker, "greedy")
    granted = (await probe.subscribe(*PATTERNS)).reasons
    assert granted == (ReasonCode.GRANTED_QOS_0,) * 20 + (ReasonCode.QUOTA_EXCEEDED,) * 12
    alike = [f"{name}/b/c/d/+" for name in "vwxyz"]
    assert (await probe.subscribe(*alike, "a/b/c/d/e")).reasons == (ReasonCode.GRANTED_QOS_0,) * 6


async def test_share_groups_of_one_client_count_as_arrangements(broker: Broker) -> None:
    probe = await client(broker, "greedy")
    groups = [f"$share/{number}/a" for number in range(25)]
    assert (await probe.subscribe(*groups)).reasons.count(ReasonCode.QUOTA_EXCEEDED) == 5


async def test_an_arrangement_that_is_given_up_makes_room_for_another(broker: Broker) -> None:
    probe = await client(broker, "greedy")
    await probe.subscribe(*PATTERNS)
    probe.send(Unsubscribe(probe.next_id(), (PATTERNS[3],)))
    await probe.expect(Unsuback)
    assert (await probe.subscribe(*PATTERNS[30:])).reasons == (ReasonCode.GRANTED_QOS_0, ReasonCode.QUOTA_EXCEEDED)


async def test_an_event_reaches_a_client_once_through_all_its_arrangements(broker: Broker) -> None:
    probe = await client(broker, "greedy")
    await probe.subscribe(*PATTERNS)
    probe.publish("a/a/a/a/a", b"once")
    assert (await probe.expect(Publish)).payload == b"once"
    probe.publish("a/a/a/a/a", b"again")
    assert (await probe.expect(Publish)).payload == b"again"


async def test_a_packet_with_too_many_user_properties_ends_the_connection(broker: Broker) -> None:
    probe = await client(broker, "wordy")
    probe.publish("a", properties=Properties(user_properties=(("", ""),) * REPEATED_MAX))
    probe.publish("a", properties=Properties(user_properties=(("", ""),) * 390_000))
    farewell = await probe.expect(Disconnect)
    assert farewell.reason == ReasonCode.QUOTA_EXCEEDED
    assert farewell.properties.reason_string == f"more than {REPEATED_MAX} user_properties in one packet"
