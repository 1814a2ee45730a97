"""Asking an admin API: what is refused before a byte is sent, and what a broken broker looks like."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from geomq.dashboard.admin_client import AdminClient
from geomq.dashboard.feed import FeedError
from geomq.errors import UsageError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:x", "ftp://a", "http://", "http://a:x", "http://a:0", "http://a/path", "http://u:p@a"]
)
async def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        AdminClient(url)


async def test_a_token_never_leaves_this_machine_in_the_clear() -> None:
    with pytest.raises(UsageError, match="unencrypted"):
        AdminClient("http://broker.example:9883", "t" * 20)
    assert AdminClient("https://broker.example:9883", "t" * 20).host == "broker.example"


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server that gives these answers, one a connection."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0) if left else b"")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    async with answering(http(200, b"[1]"), http(200, b"[2]")) as url:
        with closing(AdminClient(url)) as client:
            assert await client.get("/", list[int]) == [1]
            assert await client.get("/", list[int]) == [2]


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", http(200, b"{"), http(200, b'"x"'), http(500, b"oops")])
async def test_a_broken_answer_is_one_error(answer: bytes) -> None:
    async with answering(answer) as url:
        with closing(AdminClient(url)) as client, pytest.raises(FeedError):
            await client.get("/", list[int])


async def test_a_refusal_speaks_in_the_brokers_words() -> None:
    async with answering(http(400, b'{"error": "no such strategy"}'), http(401, b'{"error": "a token"}')) as url:
        with closing(AdminClient(url)) as client:
            with pytest.raises(UsageError, match="no such strategy"):
                await client.get("/", list[int])
            with pytest.raises(FeedError, match="a token"):
                await client.get("/", list[int])


async def test_nobody_there_is_one_error() -> None:
    async with answering() as url:
        pass
    with pytest.raises(FeedError, match="does not answer"):
        await AdminClient(url).get("/", list[int])
