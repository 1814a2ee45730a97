"""Clients that come back to a session on disk: what a broker knows of them once the disk has it that they came."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.federated import federation, until
from tests.broker.roaming.test_redirecting import check_sent
from tests.broker.roaming.test_roaming import COLUMBUS, acked, cut, deaf, lasting, quick, replace
from tests.probe import Probe

from geomq.broker.config.settings import Config, Persistence
from geomq.broker.storage.outbox import Outbox
from geomq.mqtt.codec.packets import Connack, Connect, Pubcomp, Publish, Pubrec, Pubrel, SubscribeRequest
from geomq.mqtt.codec.reasons import ReasonCode

pytestmark = pytest.mark.anyio


def on_disk(folder: Path) -> dict[str, Config]:
    return {
        name: replace(
            config,
            persistence=Persistence(enabled=True),
            broker=replace(config.broker, data_dir=str(folder / name)),
        )
        for name, config in quick(brokers=2).items()
    }


async def test_a_client_that_comes_back_outside_the_area_is_sent_away(tmp_path: Path) -> None:
    async with federation(on_disk(tmp_path)) as brokers:
        frankfurt = brokers["frankfurt"]
        client, _ = await Probe.connect(frankfurt.port, lasting("r", ("geo-location", COLUMBUS)))
        await client.drop()
        await until(lambda: frankfurt.core.clients["r"].connection is None)
        await asyncio.sleep(1.2)  # the look at all clients after a change of areas is over
        client, _ = await Probe.connect(frankfurt.port, lasting("r", ("geo-roam", "1")))
        await check_sent(client, brokers["columbus"])


async def test_a_client_that_got_its_session_came_when_other_brokers_were_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with federation(on_disk(tmp_path)) as brokers:
        frankfurt, columbus = brokers["frankfurt"], brokers["columbus"]
        client, _ = await Probe.connect(columbus.port, lasting("r"))
        await client.drop()
        asked, waiting = int(frankfurt.core.wall_s() * 1000), list[Callable[[], None]]()
        monkeypatch.setattr(Outbox, "when_safe", lambda _, then: waiting.append(then))
        client = await Probe.open(frankfurt.port)
        client.send(lasting("r"))
        await until(lambda: bool(waiting))
        waits = int(frankfurt.core.wall_s() * 1000)
        await asyncio.sleep(0.05)
        waiting[0]()
        assert (await client.expect(Connack)).session_present
        assert asked <= frankfurt.core.clients["r"].since_ms <= waits
        await client.drop()


async def test_of_two_that_come_back_at_the_same_time_the_later_stays(tmp_path: Path) -> None:
    async with federation(on_disk(tmp_path)) as brokers:
        port, clients = brokers["frankfurt"].port, brokers["frankfurt"].core.clients
        client, _ = await Probe.connect(port, lasting("r"))
        await client.drop()
        await until(lambda: clients["r"].connection is None)
        probes = [await Probe.open(port) for _ in range(3)]
        for probe in probes:
            probe.send(lasting("r"))
        told = [await probe.expect(Connack) for probe in probes]
        assert [each.reason for each in told] == [ReasonCode.SERVER_BUSY] * 2 + [ReasonCode.SUCCESS]
        for probe in probes:
            await probe.drop()


@pytest.mark.parametrize("durable", [False, True])
async def test_a_client_that_never_heard_of_its_new_session_goes_on_where_it_was(tmp_path: Path, durable: bool) -> None:
    """Its CONNACK is lost: what it sent, and what it has of QoS 2, keeps its packet identifiers."""
    configured = on_disk(tmp_path) if durable else quick(brokers=2)
    waits = {n: replace(c, federation=replace(c.federation, session_wait_s=0.3)) for n, c in configured.items()}
    async with federation(waits) as brokers:
        frankfurt, columbus = brokers["frankfurt"], brokers["columbus"]
        reader, _ = await Probe.connect(columbus.port, Connect("s"))
        await reader.subscribe(SubscribeRequest("u", 0))
        client, _ = await Probe.connect(frankfurt.port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 2))
        writer, _ = await Probe.connect(frankfurt.port, Connect("p"))
        await asyncio.sleep(0.3)
        client.send(Publish("u", b"once", 2, packet_id=5))
        await client.expect(Pubrec)
        assert (await reader.expect(Publish)).payload == b"once"
        await acked(writer, "t", b"1", 2)
        client.send(Pubrec((await client.expect(Publish)).packet_id))
        released = (await client.expect(Pubrel)).packet_id
        await client.drop()
        await until(lambda: frankfurt.core.clients["r"].connection is None)
        answer = deaf(frankfurt)
        client, connack = await Probe.connect(columbus.port, lasting("r"))
        assert not connack.session_present
        await client.drop()
        await until(lambda: columbus.core.clients["r"].connection is None)
        answer()
        cut(columbus, frankfurt)
        await until(lambda: "r" not in frankfurt.core.clients and bool(columbus.core.clients["r"].session.pending))
        client, connack = await Probe.connect(columbus.port, lasting("r"))
        assert connack.session_present
        assert (await client.expect(Pubrel)).packet_id == released
        client.send(Publish("u", b"once", 2, packet_id=5, dup=True))
        await client.expect(Pubrec)
        await acked(writer, "t", b"2", 2)
        assert (await client.expect(Publish)).packet_id != released, "the client would take it for a repeat"
        client.send(Pubcomp(released))
        assert await reader.silent(0.4)
        for probe in (client, reader, writer):
            await probe.drop()
