"""Brokers that are no peers: heard once, and not for long."""

import pytest
from tests.broker.federated import until
from tests.broker.peers.test_channel import Side, connected

from geomq.broker.peers.unknown_brokers import Visitors
from geomq.routing.core.model import BrokerId
from geomq.routing.wire.frames import Aside, AskToJoin, Described, NotJoined
from geomq.routing.wire.link import Ack, Hello

pytestmark = pytest.mark.anyio


class Doorkeeper:
    """Lets nobody in, but tells `former` members what has become of the federation."""

    def __init__(self, *, former: bool = False) -> None:
        self._former = former

    def asked_to_join(self, name: BrokerId, entry: bytes) -> Aside:
        return NotJoined(f"{name} may not: {entry!r}")

    def unknown(self, name: BrokerId) -> Aside | None:
        return Described(name.encode()) if self._former else None

    def described(self, peer: BrokerId, description: bytes) -> None:
        raise AssertionError("no peer is heard here")


async def test_who_asks_to_join_gets_an_answer() -> None:
    here, there = Side(), Side()
    server = await connected(here, there)
    visitors = Visitors(Doorkeeper())
    assert here.channel is not None
    assert visitors.receive(here.channel)
    visitors.hear(here.channel, AskToJoin(b"me"))
    await until(lambda: bool(there.frames))
    assert there.frames == [NotJoined("b may not: b'me'")]
    assert here.channel in visitors
    visitors.close()
    assert here.channel not in visitors
    await until(lambda: bool(there.reasons))
    assert here.reasons == ["this broker is shutting down"]
    server.close()


@pytest.mark.parametrize("former", [True, False])
async def test_who_believes_to_be_a_peer_is_told_or_refused(former: bool) -> None:
    here, there = Side(), Side()
    server = await connected(here, there)
    visitors = Visitors(Doorkeeper(former=former))
    assert here.channel is not None
    assert visitors.receive(here.channel)
    visitors.hear(here.channel, Hello(1, 0, None, 0, False))
    await until(lambda: bool(there.frames or there.reasons))
    assert there.frames == ([Described(b"b")] if former else [])
    visitors.hear(here.channel, Ack(1, 1))
    await until(lambda: bool(there.reasons))
    assert here.reasons == ["broker 'b' is not expected here"]
    assert visitors.left(here.channel)
    assert not visitors.left(here.channel)
    server.close()


async def test_visitors_are_few_and_stay_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.peers.unknown_brokers.VISITORS_MAX", 1)
    monkeypatch.setattr("geomq.broker.peers.unknown_brokers.VISIT_S_MAX", 0.05)
    here, there, other, another = Side(), Side(), Side(), Side()
    servers = [await connected(here, there), await connected(other, another)]
    visitors = Visitors(Doorkeeper())
    assert here.channel is not None
    assert other.channel is not None
    assert visitors.receive(here.channel)
    assert not visitors.receive(other.channel)
    await until(lambda: bool(here.reasons))
    assert here.reasons == ["an unknown broker stayed connected too long"]
    other.channel.close("done")
    await until(lambda: bool(another.reasons))
    for server in servers:
        server.close()


async def test_nobody_is_received_where_nobody_deals_with_strangers() -> None:
    here, there = Side(), Side()
    server = await connected(here, there)
    assert here.channel is not None
    assert not Visitors(None).receive(here.channel)
    here.channel.close("done")
    await until(lambda: bool(there.reasons))
    server.close()
