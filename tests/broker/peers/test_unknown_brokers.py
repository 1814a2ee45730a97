"""Brokers that are no peers: heard once, and not for long."""

import pytest
from tests.broker.federated import until
from tests.broker.peers.test_channel import Side, connected

from geomq.broker.peers.unknown_brokers import UnknownBrokers
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
    unknown_brokers = UnknownBrokers(Doorkeeper())
    assert here.channel is not None
    assert unknown_brokers.accept(here.channel)
    unknown_brokers.received(here.channel, AskToJoin(b"me"))
    await until(lambda: bool(there.frames))
    assert there.frames == [NotJoined("b may not: b'me'")]
    assert here.channel in unknown_brokers
    unknown_brokers.close()
    assert here.channel not in unknown_brokers
    await until(lambda: bool(there.reasons))
    assert here.reasons == ["this broker is shutting down"]
    server.close()


@pytest.mark.parametrize("former", [True, False])
async def test_who_believes_to_be_a_peer_is_told_or_refused(former: bool) -> None:
    here, there = Side(), Side()
    server = await connected(here, there)
    unknown_brokers = UnknownBrokers(Doorkeeper(former=former))
    assert here.channel is not None
    assert unknown_brokers.accept(here.channel)
    unknown_brokers.received(here.channel, Hello(1, 0, None, 0, False))
    await until(lambda: bool(there.frames or there.reasons))
    assert there.frames == ([Described(b"b")] if former else [])
    unknown_brokers.received(here.channel, Ack(1, 1))
    await until(lambda: bool(there.reasons))
    assert here.reasons == ["broker 'b' is not expected here"]
    assert unknown_brokers.closed(here.channel)
    assert not unknown_brokers.closed(here.channel)
    server.close()


async def test_unknown_brokers_are_few_and_stay_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.peers.unknown_brokers.UNKNOWN_BROKERS_MAX", 1)
    monkeypatch.setattr("geomq.broker.peers.unknown_brokers.REQUEST_S_MAX", 0.05)
    here, there, other, another = Side(), Side(), Side(), Side()
    servers = [await connected(here, there), await connected(other, another)]
    unknown_brokers = UnknownBrokers(Doorkeeper())
    assert here.channel is not None
    assert other.channel is not None
    assert unknown_brokers.accept(here.channel)
    assert not unknown_brokers.accept(other.channel)
    await until(lambda: bool(here.reasons))
    assert here.reasons == ["an unknown broker stayed connected too long"]
    other.channel.close("done")
    await until(lambda: bool(another.reasons))
    for server in servers:
        server.close()


async def test_no_unknown_broker_is_accepted_without_a_handler() -> None:
    here, there = Side(), Side()
    server = await connected(here, there)
    assert here.channel is not None
    assert not UnknownBrokers(None).accept(here.channel)
    here.channel.close("done")
    await until(lambda: bool(there.reasons))
    server.close()
