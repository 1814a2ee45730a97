"""The one loop: what happened is traced, kept and carried out, whatever it was."""

from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import configs, federation, until
from tests.broker.roaming.test_roaming import acked, lasting
from tests.probe import Probe

from geomq.broker.config.settings import Config
from geomq.broker.fastpath.links import PeerBatch
from geomq.broker.server import Broker
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Publish, SubscribeRequest
from geomq.mqtt.codec.types import V311
from geomq.routing.core.actions import DeliverToClients, SendOnceFlushed
from geomq.routing.core.events import ClientReady
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.plan import Batched
from geomq.routing.sessions.messages import AskReached
from geomq.routing.trace.records import TraceRecord

pytestmark = pytest.mark.anyio

replace = msgspec.structs.replace


def durable(config: Config, folder: Path) -> Config:
    return replace(
        config,
        broker=replace(config.broker, data_dir=str(folder / config.broker.name)),
        persistence=replace(config.persistence, enabled=True, sync=False),
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_own_clients_had_of_own_events_is_known_after_a_restart(qos: int, tmp_path: Path) -> None:
    """Without it the client would get the event once more, should it go to another broker and come back."""
    configured = {name: durable(each, tmp_path) for name, each in configs("flood_events", brokers=2).items()}
    async with federation(configured) as brokers:
        here = brokers["columbus"]
        client, _ = await Probe.connect(here.port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", qos))
        publisher, _ = await Probe.connect(here.port, Connect("p"))
        if qos:
            await acked(publisher, "t", b"", qos)
        else:
            publisher.send(Publish("t", b"", 0))
        await client.expect(Publish)
        had = here.core.node.had_by([ClientId("r")])
        assert len(had) == 1
        for probe in (client, publisher):
            await probe.drop()
    async with Broker(configured["columbus"]) as restarted:
        assert restarted.core.node.had_by([ClientId("r")]) == (had if qos else ())


async def test_what_follows_from_a_deadline_is_traced_kept_and_carried_out_like_anything_else(tmp_path: Path) -> None:
    configured = {name: durable(each, tmp_path) for name, each in configs("flood_events", brokers=2).items()}
    records: list[TraceRecord] = []
    async with federation(configured) as brokers:
        here = brokers["columbus"]
        client, _ = await Probe.connect(here.port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 1))
        here.core.trace(records.append)
        node, due = here.core.node, [here.core.now_ms() + 5.0]
        event = Event(EventId(BrokerId("frankfurt"), 1, 1), "t", ClientId("p"), None, None, b"due", 1)

        def on_deadline(*, now: float) -> list[DeliverToClients]:
            due.clear()
            return [DeliverToClients(event, (Match(ClientId("r"), "t"),))]

        node.next_deadline = lambda: due[0] if due else None  # type: ignore[method-assign]
        node.on_deadline = on_deadline  # type: ignore[method-assign, assignment]
        here.parts.driver.handle(_nothing())
        assert (await client.expect(Publish)).payload == b"due"
        await until(lambda: any(record.step == "delivered" and record.event_id == event.id for record in records))
        await client.drop()
    async with Broker(configured["columbus"]) as restarted:
        assert restarted.core.node.had_by([ClientId("r")]) == (event.id,)


def _nothing() -> ClientReady:
    return ClientReady(ClientId("nobody"), True)


async def test_what_was_gathered_for_peers_is_sent_before_what_waits_until_all_that_was_sent_has_arrived() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        here, peer = brokers["columbus"], BrokerId("frankfurt")
        assert here.peering is not None
        await until(lambda: peer in here.core.node.routings.linked)
        link, links = here.peering._peers[peer].link, here.parts.fast.links
        found: list[int] = []
        here.parts.driver._links.once_flushed = lambda *_: found.append(link.latest)
        here.core.node.handle = lambda *_, **__: [SendOnceFlushed(peer, AskReached(1))]  # type: ignore[method-assign]
        before, packet = link.latest, encode(Publish("t", b"x", 1, packet_id=1), V311)
        links.durable[peer] = PeerBatch([Batched(ClientId("p"), None, 1, 1, False, None, len(packet))], [packet])
        here.parts.driver.handle(_nothing())
        assert not links.durable
        assert found == [before + 1]
        del here.core.node.handle


async def test_what_clients_had_along_plans_is_known_after_a_restart_where_it_was_published_and_elsewhere(
    tmp_path: Path,
) -> None:
    configured = {name: durable(each, tmp_path) for name, each in configs("flood_events", brokers=2).items()}
    had = {}
    async with federation(configured) as brokers:
        probes = []
        for name, broker in brokers.items():
            client, _ = await Probe.connect(broker.port, lasting(f"r-{name}"))
            await client.subscribe(SubscribeRequest("t", 1))
            probes.append(client)
        publisher, _ = await Probe.connect(brokers["columbus"].port, Connect("p"))
        for _ in range(5):
            await acked(publisher, "t", b"", 1)
            for client in probes:
                await client.expect(Publish)
        for name, broker in brokers.items():
            had[name] = broker.core.node.had_by([ClientId(f"r-{name}")])
            assert len(had[name]) == 5
        for probe in (*probes, publisher):
            await probe.drop()
    for name, config in configured.items():
        async with Broker(config) as restarted:
            assert set(restarted.core.node.had_by([ClientId(f"r-{name}")])) == set(had[name])


async def test_what_was_gathered_for_peers_is_in_the_write_that_its_acknowledgement_waits_for(tmp_path: Path) -> None:
    configured = {name: durable(each, tmp_path) for name, each in configs("flood_events", brokers=2).items()}
    async with federation(configured) as brokers:
        here, peer = brokers["columbus"], BrokerId("frankfurt")
        await until(lambda: peer in here.core.node.routings.linked)
        packet, links = encode(Publish("t", b"x", 1, packet_id=1), V311), here.parts.fast.links
        assert here._committer is not None
        assert here.parts.kept is not None
        links.durable[peer] = PeerBatch([Batched(ClientId("p"), None, 1, 1, False, None, len(packet))], [packet])
        here._committer.when_safe(lambda: None)
        here._committer.commit()
        assert not links.durable
        assert len(here.parts.kept._outboxes[peer]) == 1


async def test_what_was_gathered_for_a_peer_that_is_away_waits_for_it_one_by_one() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        here, peer = brokers["columbus"], BrokerId("frankfurt")
        assert here.peering is not None
        await brokers["frankfurt"].stop()
        await until(lambda: peer not in here.core.node.routings.linked)
        packets, links = encode(Publish("t", b"x", 1, packet_id=1), V311) * 2, here.parts.fast.links
        links.durable[peer] = PeerBatch([Batched(ClientId("p"), None, 1, 2, False, None, len(packets))], [packets])
        links.send()
        waiting = here.peering._peers[peer].link.durable()
        assert [type(message) for message in waiting] == [ForwardEvent, ForwardEvent]
