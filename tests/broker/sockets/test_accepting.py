"""Sockets that are accepted, counted before their handshake, and left waiting while descriptors run short."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.certificates import Authority
from tests.broker.descriptors import descriptors
from tests.broker.federated import until

from geomq.broker.sockets.accepting import Arriving, Server, open_server

pytestmark = pytest.mark.anyio


class Visitor(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self, visitors: "Visitors") -> None:
        self._visitors = visitors
        self.established = self.lost = False
        self.transport: Any = None

    def arrived(self, transport: Any) -> bool:
        self.transport = transport
        if len(self._visitors.here) >= self._visitors.room:
            return False
        self._visitors.here.append(self)
        return True

    def connection_made(self, transport: Any) -> None:
        self.transport, self.established = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        assert not self.lost, "once"
        self.lost = True
        self._visitors.here.remove(self)


class Visitors:
    def __init__(self, room: int = 1_000) -> None:
        self.here: list[Visitor] = []
        self.room = room

    def make(self) -> Arriving:
        return Visitor(self)


@asynccontextmanager
async def serving(
    visitors: Visitors, *, tls: ssl.SSLContext | None = None, end: int | None = None
) -> AsyncIterator[Server]:
    server = await open_server(visitors.make, "127.0.0.1", 0, tls=lambda: tls, end=end)
    try:
        yield server
    finally:
        server.close()
        for visitor in tuple(visitors.here):
            visitor.transport.abort()
        await until(lambda: not visitors.here)


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).issue("localhost"))
    return context


async def dial(server: Server) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, server.addresses[0])
    return made


def lowest_free() -> int:
    found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)
    return found


async def test_a_handshake_that_never_begins_counts_and_can_be_ended(tls: ssl.SSLContext) -> None:
    visitors = Visitors(room=2)
    async with serving(visitors, tls=tls) as server:
        dialled = [await dial(server) for _ in range(3)]
        assert await asyncio.get_running_loop().sock_recv(dialled[2], 1) == b""
        assert len(visitors.here) == 2
        assert not any(visitor.established for visitor in visitors.here)
        assert visitors.here[0].transport.get_extra_info("peername")[0] == "127.0.0.1"
        visitors.here[0].transport.abort()
        assert await asyncio.get_running_loop().sock_recv(dialled[0], 1) == b""
        assert len(visitors.here) == 1
        dialled[1].close()
        await until(lambda: not visitors.here)
        for each in dialled:
            each.close()


async def test_after_the_handshake_it_is_an_ordinary_connection(tls: ssl.SSLContext) -> None:
    visitors = Visitors()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with serving(visitors, tls=tls) as server:
        _, writer = await asyncio.open_connection(*server.addresses[0], ssl=context)
        await until(lambda: visitors.here[0].established)
        writer.close()
        await until(lambda: not visitors.here)


async def test_while_descriptors_run_short_what_comes_waits(caplog: pytest.LogCaptureFixture) -> None:
    visitors = Visitors()
    dialled = [socket.socket() for _ in range(20)]
    async with serving(visitors, end=lowest_free() + 9) as server:
        with caplog.at_level(logging.WARNING):
            for each in dialled:
                each.setblocking(False)
                await asyncio.get_running_loop().sock_connect(each, server.addresses[0])
            await until(lambda: len(visitors.here) == 9)
            await asyncio.sleep(0.5)
        assert len(visitors.here) == 9
        assert [record.message for record in caplog.records] == ["file descriptors run short: new connections wait"]
        for each in dialled[:6]:
            each.close()
        await until(lambda: len(visitors.here) == 9 and visitors.here[-1].established)
        for each in dialled:
            each.close()
        await until(lambda: not visitors.here)


async def test_nothing_breaks_when_there_is_no_descriptor_at_all() -> None:
    visitors = Visitors()
    dialled = [socket.socket() for _ in range(5)]
    async with serving(visitors) as server:
        for each in dialled:
            each.setblocking(False)
        with descriptors(2):
            for each in dialled:
                await asyncio.get_running_loop().sock_connect(each, server.addresses[0])
            await until(lambda: len(visitors.here) == 2)
            await asyncio.sleep(0.3)
            assert len(visitors.here) == 2
        await until(lambda: len(visitors.here) == 5)
        for each in dialled:
            each.close()


async def test_it_listens_on_every_address_of_a_host() -> None:
    visitors = Visitors()
    server = await open_server(visitors.make, None, 0, tls=lambda: None, end=None)
    assert {host for host, _ in server.addresses} <= {"0.0.0.0", "::"}
    server.close()
