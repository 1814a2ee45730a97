"""A broker that has the key and says what it should not: nothing of it reaches clients, and the link ends."""

import pytest
from tests.broker.federated import configs, federation, until

from geomq.broker.probe import Probe
from geomq.mqtt.packets import Connect, Puback, SubscribeRequest
from geomq.mqtt.types import V5
from geomq.routing.messages import ForwardEvent, Message
from geomq.routing.model import BrokerId, ClientId, Event, EventId
from geomq.routing.retained import PutRetained

pytestmark = pytest.mark.anyio

FRANKFURT, COLUMBUS = BrokerId("frankfurt"), BrokerId("columbus")


def event(topic: str, *, sequence: int = 1, qos: int = 0, retain: bool = False) -> Event:
    return Event(EventId(FRANKFURT, 5, sequence), topic, ClientId("evil"), None, None, b"x", qos, retain)


@pytest.mark.parametrize(
    "message",
    [
        ForwardEvent(event("a/+")),
        ForwardEvent(event("a", qos=3)),
        PutRetained(event("ret/#", retain=True)),
        PutRetained(event("ret/x", sequence=2**64 - 1, retain=True)),
    ],
    ids=["wildcard", "qos", "retained wildcard", "retained version"],
)
async def test_what_no_event_can_be_ends_the_link_and_reaches_nobody(message: Message) -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        here, there = brokers["columbus"].peering, brokers["frankfurt"].peering
        assert here is not None
        assert there is not None
        client, _ = await Probe.connect(brokers["columbus"].port, Connect("s", V5))
        await client.subscribe(SubscribeRequest("#", 1))
        before = here._peers[FRANKFURT].channel
        there.send(COLUMBUS, message)
        await until(lambda: here._peers[FRANKFURT].channel is not before)
        assert await client.silent(0.3)
        publisher, _ = await Probe.connect(brokers["columbus"].port, Connect("p", V5))
        publisher.publish("ret/x", b"mine", 1, retain=True)
        await publisher.expect(Puback)
        assert brokers["columbus"].desk.retention.topics() == ["ret/x"]
        for probe in (client, publisher):
            await probe.drop()
