"""Who dials whom, and how often."""

import asyncio

import pytest
from tests.broker.federated import until
from tests.broker.peers.test_channel import Side

from geomq.broker.peers.channel import Credentials, PeerChannel
from geomq.broker.peers.dialling import Dialler
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.platform import SYSTEM

pytestmark = pytest.mark.anyio


class Caller:
    """A dialler and the connections that reach the other side."""

    def __init__(self, *, ours: bool = True, address: PeerAddress | None = None) -> None:
        self.missing = True
        self.reached: list[asyncio.StreamWriter] = []
        self.dialler = Dialler(
            "b",
            address,
            ours=ours,
            tls=lambda: None,
            make_channel=lambda: PeerChannel(Credentials("a", None), Side(), expected="b", frame_bytes_max=1000),
            is_missing=lambda: self.missing,
            platform=SYSTEM,
        )

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        self.dialler.move(PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1]))
        return server

    async def _met(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached.append(writer)

    async def close(self, server: asyncio.Server) -> None:
        self.dialler.stop()
        server.close()
        for _ in range(10):
            await asyncio.sleep(0)  # what was accepted before that arrives in a few rounds of the loop
        for writer in self.reached:
            writer.close()


async def test_a_missing_peer_is_dialled_again_until_it_is_there() -> None:
    caller = Caller()
    server = await caller.listen()
    caller.dialler.start()
    await until(lambda: len(caller.reached) >= 3)
    caller.missing = False
    caller.dialler.linked()
    await asyncio.sleep(1.0)
    count = len(caller.reached)
    await asyncio.sleep(0.5)
    assert len(caller.reached) == count
    await caller.close(server)


async def test_one_that_refused_is_left_alone_for_a_while() -> None:
    caller = Caller()
    server = await caller.listen()
    caller.dialler.refused(for_s=0.5)
    caller.dialler.start()
    await asyncio.sleep(0.3)
    assert caller.reached == []
    await until(lambda: bool(caller.reached))
    await caller.close(server)


async def test_one_that_dials_us_is_dialled_only_while_we_have_never_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.peers.dialling.PATIENCE_S", 0.1)
    for met in (False, True):
        caller = Caller(ours=False)
        server = await caller.listen()
        if met:
            caller.dialler.linked()
        caller.dialler.start()
        await asyncio.sleep(0.6)
        assert bool(caller.reached) is not met
        await caller.close(server)


async def test_a_peer_without_an_address_is_dialled_once_it_has_one() -> None:
    caller = Caller()
    caller.dialler.start()
    server = await caller.listen()
    assert caller.reached == []
    caller.dialler.start()
    await until(lambda: bool(caller.reached))
    await caller.close(server)
