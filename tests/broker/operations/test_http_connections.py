"""Connections of the HTTP server that are idle, slow, or too many; others are answered meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.broker.federated import until

from geomq.broker.operations import http_connections
from geomq.broker.operations.http_connections import CONNECTIONS_MAX
from geomq.broker.operations.http_server import HttpServer

pytestmark = pytest.mark.anyio

ASK = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """Answers `/health` at once, `/slow` when told, and `/body` with what was sent."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked = 0
        routes = [Route("/health", self.health), Route("/slow", self.slow), Route("/body", self.body, methods=["POST"])]
        self.server = HttpServer(Starlette(routes=routes), "127.0.0.1", 0, what="it")
        self.wires: list[Wire] = []

    async def health(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    async def slow(self, _request: Request) -> Response:
        self.asked += 1
        await self.go_on.wait()
        return PlainTextResponse("at last")

    async def body(self, request: Request) -> Response:
        return Response(await request.body())

    async def dial(self, data: bytes = b"") -> Wire:
        wire = await asyncio.open_connection("127.0.0.1", self.server.port)
        self.wires.append(wire)
        wire[1].write(data)
        return wire

    async def status(self, wire: Wire) -> int:
        async with asyncio.timeout(30):
            return int((await wire[0].readline()).split()[1])

    async def ended(self, wire: Wire) -> None:
        async with asyncio.timeout(30):
            try:
                while await wire[0].read(65_536):
                    pass
            except ConnectionError:
                pass


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.server.start()
    try:
        yield made
    finally:
        made.go_on.set()
        for _, writer in made.wires:
            writer.transport.abort()
        await made.server.stop()


async def test_idle_connections_keep_nobody_from_being_answered() -> None:
    async with site() as made:
        for _ in range(2 * CONNECTIONS_MAX):
            await made.dial()
            assert len(made.server._connections) <= CONNECTIONS_MAX
        assert await made.status(await made.dial(ASK % b"/health")) == 200
        assert len(made.server._connections) == CONNECTIONS_MAX


async def test_who_waits_for_an_answer_stays_while_others_are_idle() -> None:
    async with site() as made:
        waiting = await made.dial(ASK % b"/slow")
        await until(lambda: made.asked == 1)
        for _ in range(CONNECTIONS_MAX + 10):
            await made.dial(b"GET /slow HT")
        await until(lambda: len(made.server._connections) == CONNECTIONS_MAX)
        made.go_on.set()
        assert await made.status(waiting) == 200


async def test_even_if_all_of_them_ask_a_newcomer_is_answered() -> None:
    async with site() as made:
        slow = [await made.dial(ASK % b"/slow") for _ in range(CONNECTIONS_MAX)]
        await until(lambda: made.asked == CONNECTIONS_MAX)
        assert await made.status(await made.dial(ASK % b"/health")) == 200
        await made.ended(slow[0])


async def test_who_is_idle_or_takes_forever_to_ask_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "IDLE_S", 0.3)
    async with site() as made:
        silent, dripping = await made.dial(), await made.dial()

        async def drip() -> None:
            for byte in ASK % (b"/" * 10_000):
                dripping[1].write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripper = asyncio.create_task(drip())
        await made.ended(silent)
        await made.ended(dripping)
        dripper.cancel()
        again = await made.dial(ASK % b"/health")
        assert await made.status(again) == 200
        await made.ended(again)
        assert not len(made.server._connections)


async def test_a_request_may_take_longer_than_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "IDLE_S", 0.2)
    async with site() as made:
        slow = await made.dial(ASK % b"/slow")
        await until(lambda: made.asked == 1)
        await made.ended(await made.dial())
        made.go_on.set()
        assert await made.status(slow) == 200


async def test_a_request_has_so_much_time_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "IDLE_S", 600.0)
    monkeypatch.setattr(http_connections, "REQUEST_S", 0.3)
    async with site() as made:
        body = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nsome of it"
        late = [await made.dial(body), await made.dial(ASK % b"/slow")]
        for wire in late:
            await made.ended(wire)
        assert not len(made.server._connections)


async def test_several_requests_on_one_connection_are_answered_one_after_the_other() -> None:
    async with site() as made:
        wire = await made.dial(ASK % b"/health" * 3)
        data = b""
        async with asyncio.timeout(30):
            while data.count(b"200 OK") < 3:
                data += await wire[0].read(65_536)
        assert data.count(b"\r\n\r\nok") == 3
