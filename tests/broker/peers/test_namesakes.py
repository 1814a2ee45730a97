"""Two brokers of one name: the second is refused, aloud and at both. One that comes back is not taken for a second."""

import asyncio
import logging
from contextlib import AsyncExitStack

import msgspec
import pytest
from tests.broker.federated import admitting, configs, federation, free_ports, peers_up, until
from tests.broker.peers.test_channel import Side
from tests.broker.peers.test_membership import Stream, membership, newcomer, settled
from tests.broker.peers.test_trust import replaced

from geomq.broker.config.settings import Config
from geomq.broker.peers.channel import Credentials, PeerChannel
from geomq.broker.server import Broker
from geomq.routing.core.model import BrokerId

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("SETTLE_S", 0.2),
        ("ANSWER_S", 1.5),
    ):
        monkeypatch.setattr(f"geomq.broker.peers.namesakes.{name}", seconds)
    monkeypatch.setattr("geomq.broker.peers.peering.RETRY_S", 0.5)
    monkeypatch.setattr("geomq.broker.peers.dialling.PATIENCE_S", 0.1)


def twin(config: Config) -> Config:
    """The same broker once more, at other ports."""
    (port,) = free_ports(1)
    return replaced(config, port=port)


def errors(caplog: pytest.LogCaptureFixture, text: str) -> list[dict[str, object]]:
    return [record.__dict__ for record in caplog.records if record.levelno == logging.ERROR and record.msg == text]


REFUSES, REFUSED = "refused a second broker of the same name", "this broker was refused"


@pytest.mark.parametrize("name", ["columbus", "frankfurt"])
async def test_a_second_broker_of_the_same_name_is_refused_aloud_and_disturbs_nobody(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    configured = configs("flood_events", brokers=2)
    (other,) = set(configured) - {name}
    async with federation(configured) as brokers:
        here, peering = brokers[other], brokers[other].peering
        assert peering is not None
        linked = peering._peers[BrokerId(name)].channel
        assert linked is not None
        here_to_there, there_to_here = Stream(), Stream()
        async with Broker(twin(configured[name])) as second, AsyncExitStack() as stack:
            await here_to_there.start(stack, here, brokers[name], "a")
            await there_to_here.start(stack, brokers[name], here, "b")
            await until(lambda: here.core.counts.name_conflicts >= 3 and second.core.counts.name_conflicts >= 3)
            assert peering._peers[BrokerId(name)].channel is linked
            assert peers_up(second) == 0
            await here_to_there.check()
            await there_to_here.check()
        (refuses, refused) = errors(caplog, REFUSES)[0], errors(caplog, REFUSED)[0]
        assert (refuses["peer"], refused["peer"]) == (name, other)
        assert refuses["linked"] == refused["linked"] == linked.address
        assert refuses["refused"] == refused["refused"] != linked.address
        assert f"another broker named {name} is linked there" in str(refused["reason"])


async def test_by_what_a_broker_is_told_from_a_second_one_cannot_be_read_in_its_events() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"].peering
        assert columbus.peering is not None
        assert frankfurt is not None
        channel = frankfurt._peers[BrokerId("columbus")].channel
        assert channel is not None
        assert channel.epoch == columbus.peering.credentials.epoch != columbus.core.node.epoch


async def test_a_refused_broker_is_linked_once_the_other_is_gone() -> None:
    configured = configs("flood_events", brokers=2)
    async with federation(configured) as brokers, Broker(twin(configured["columbus"])) as second:
        await until(lambda: second.core.counts.name_conflicts > 0)
        await brokers["columbus"].stop()
        await until(lambda: second.linked and brokers["frankfurt"].linked)
        assert peers_up(brokers["frankfurt"]) == peers_up(second) == 1


@pytest.mark.parametrize("asks", [False, True], ids=["peer", "joining"])
async def test_a_broker_that_comes_back_takes_the_place_of_its_connection_that_fell_silent(asks: bool) -> None:
    configured = admitting(configs("flood_events", brokers=2), "rome")
    async with federation(configured) as brokers:
        columbus, silent = brokers["columbus"], Side()
        if asks:
            async with Broker(newcomer(configured["columbus"])) as rome:
                await until(lambda: settled(columbus, rome))
            config = newcomer(configured["columbus"])
        else:
            await brokers["frankfurt"].stop()
            config = configured["frankfurt"]
        await until(lambda: peers_up(columbus) == int(asks))
        old = PeerChannel(Credentials(config.broker.name, None), silent, expected=None, frame_bytes_max=1 << 20)
        await asyncio.get_running_loop().create_connection(
            lambda: old, "127.0.0.1", configured["columbus"].federation.port or 0
        )
        await until(lambda: bool(silent.peers))
        async with Broker(config) as again:
            await until(lambda: again.linked and columbus.linked and peers_up(again) == 1 + asks)
            assert silent.reasons
        assert columbus.core.counts.name_conflicts == 0


async def test_who_asks_to_join_under_a_name_that_is_linked_is_refused_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configured = admitting(configs("flood_events", brokers=2), "rome")
    async with federation(configured) as brokers, Broker(newcomer(configured["columbus"])) as rome:
        everybody = (*brokers.values(), rome)
        await until(lambda: settled(*everybody) and all(broker.linked for broker in everybody))
        addresses = membership(brokers["columbus"]).addresses
        async with Broker(newcomer(configured["columbus"])) as second:
            await until(lambda: second.core.counts.name_conflicts > 0)
            assert brokers["columbus"].core.counts.name_conflicts > 0
            assert membership(second).addresses == {}
            assert membership(brokers["columbus"]).addresses == addresses
            assert all(broker.linked for broker in everybody)
    assert errors(caplog, REFUSES)[0]["peer"] == "rome"
    assert errors(caplog, REFUSED)[0]["peer"] == "columbus"


async def test_two_brokers_that_meet_and_have_one_name_both_say_so(caplog: pytest.LogCaptureFixture) -> None:
    configured = configs("flood_events", brokers=2)
    seed = msgspec.structs.replace(configured["columbus"], peers=())
    second = msgspec.structs.replace(newcomer(seed), broker=seed.broker)
    async with Broker(seed) as one, Broker(second) as two:
        await until(lambda: one.core.counts.name_conflicts > 0 and two.core.counts.name_conflicts > 0)
    (refuses, refused) = errors(caplog, REFUSES)[0], errors(caplog, REFUSED)[0]
    assert refuses["refused"] == refused["refused"]
    assert refuses["linked"] == refused["linked"] == f"127.0.0.1:{seed.federation.port}"


async def test_a_member_by_seed_that_lost_its_disk_is_a_member_again() -> None:
    configured = admitting(configs("flood_events", brokers=2), "rome")
    joining = newcomer(configured["frankfurt"])
    async with federation(configured) as brokers:
        async with Broker(joining) as rome:
            await until(lambda: settled(*brokers.values(), rome) and rome.linked)
        await until(lambda: all(peers_up(broker) == 1 for broker in brokers.values()))
        async with Broker(joining) as again:
            await until(lambda: peers_up(again) == 2 and all(broker.linked for broker in brokers.values()))
            assert membership(again).status().edition.number == 1
