"""A broker that has the key and says what it should not: nothing of it reaches clients, the rest does."""

from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import configs, federation
from tests.probe import Probe

from geomq.broker.roaming.session_transfer import PackedDelivery, SessionTransfer
from geomq.broker.storage.records import SessionRecord
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.types import V5
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.messages import ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.core.plan import Batched, EventBatch
from geomq.routing.retained.versions import PutRetained
from geomq.routing.sessions.messages import HandOver, SessionWanted

pytestmark = pytest.mark.anyio

replace = msgspec.structs.replace
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
        EventBatch(5, 0, (Batched(ClientId("evil"), None, 1, 3, False, None, 5),), (b"0\x03\x00\x01a",)),
    ],
    ids=["wildcard", "qos", "retained wildcard", "retained version", "damaged batch"],
)
async def test_what_no_event_can_be_is_refused_while_the_link_and_its_neighbours_live(message: Message) -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        columbus = brokers["columbus"]
        here, there = columbus.peering, brokers["frankfurt"].peering
        assert here is not None
        assert there is not None
        client, _ = await Probe.connect(columbus.port, Connect("s", V5))
        await client.subscribe(SubscribeRequest("#", 1))
        before = here._peers[FRANKFURT].channel
        for sent in (ForwardEvent(event("before", sequence=21)), message, ForwardEvent(event("after", sequence=22))):
            there.send(COLUMBUS, sent)
        for topic in ("before", "after"):
            published = await client.expect(Publish)
            while published.topic == "a" and isinstance(message, EventBatch):  # what was well before the damage
                published = await client.expect(Publish)
            assert published.topic == topic
        assert await client.silent(0.2)
        assert columbus.core.counts.peer_messages_refused == 1
        assert here._peers[FRANKFURT].channel is before
        publisher, _ = await Probe.connect(columbus.port, Connect("p", V5))
        publisher.publish("ret/x", b"mine", 1, retain=True)
        await publisher.expect(Puback)
        assert columbus.parts.retention.topics() == ["ret/x"]
        for probe in (client, publisher):
            await probe.drop()


def forged(*messages: ApplicationMessage, user: str = "mallory") -> bytes:
    record = SessionRecord(user=user, version=V5, expiry_s=300)
    packed = tuple(PackedDelivery(message, 1, False, (), 0, False) for message in messages)
    return msgspec.msgpack.encode(SessionTransfer(record, (), {}, packed, (), ()))


async def test_a_session_nobody_asked_for_is_not_taken_in() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        columbus, there = brokers["columbus"], brokers["frankfurt"].peering
        assert there is not None
        client, _ = await Probe.connect(columbus.port, Connect("car", V5))
        for number, name in enumerate(("car", "bus")):
            there.send(
                COLUMBUS,
                HandOver(ClientId(name), number, 0, 1, forged(ApplicationMessage("never/subscribed", b"x", 1))),
            )
        assert await client.silent(0.5)
        assert "bus" not in columbus.core.clients
        assert columbus.core.counts.sessions_taken == 0
        await client.drop()


async def test_a_client_gets_nothing_from_a_late_session_that_it_has_no_right_to_read(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite open/#\n")
    configured = configs("flood_events", brokers=2)
    config = configured["columbus"]
    configured["columbus"] = replace(
        config,
        auth=replace(config.auth, acl_file=str(acl)),
        federation=replace(config.federation, session_wait_s=0.2),
    )
    async with federation(configured) as brokers:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"]
        asked: list[SessionWanted] = []

        def keep_waiting(peer: BrokerId, message: Message, now: float) -> bool:
            if isinstance(message, SessionWanted):
                asked.append(message)
            return True

        frankfurt.core.node.session_searches.said = keep_waiting  # type: ignore[method-assign]
        client, _ = await Probe.connect(columbus.port, Connect("car", V5))
        there = frankfurt.peering
        assert there is not None
        late = forged(ApplicationMessage("secret", b"no", 1), ApplicationMessage("open/a", b"yes", 1))
        there.send(COLUMBUS, HandOver(ClientId("car"), asked[0].token, 0, 1, late))
        assert (await client.expect(Publish)).payload == b"yes"
        assert await client.silent(0.3)
        assert columbus.core.counts.deliveries_denied == 1
        await client.drop()
