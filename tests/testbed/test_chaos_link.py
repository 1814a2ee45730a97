"""Frames through a misbehaving link: whole frames unless it is told to break them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from geomq.testbed.chaos_link import ChaosLink, Mischief

pytestmark = pytest.mark.anyio


def frame(number: int) -> bytes:
    body = str(number).encode()
    return len(body).to_bytes(4, "big") + body


@asynccontextmanager
async def through(link_seed: int) -> AsyncIterator[tuple[ChaosLink, asyncio.StreamWriter, bytearray, asyncio.Event]]:
    """A link, a writer at its near end, what arrived at its far end, and whether that end was closed."""
    arrived, over = bytearray(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                arrived.extend(data)
        except ConnectionError:
            pass
        finally:
            over.set()
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with ChaosLink(server.sockets[0].getsockname()[1], seed=link_seed) as link:
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        yield link, writer, arrived, over
        writer.transport.abort()
    async with asyncio.timeout(60):
        await over.wait()
    server.close()
    await server.wait_closed()


async def until_size(arrived: bytearray, size: int) -> None:
    async with asyncio.timeout(60):
        while len(arrived) < size:
            await asyncio.sleep(0.01)


async def test_without_mischief_every_frame_passes_in_order() -> None:
    async with through(1) as (link, writer, arrived, _):
        sent = b"".join(map(frame, range(50)))
        writer.write(sent)
        await until_size(arrived, len(sent))
        assert bytes(arrived) == sent
        assert link.done == {}


async def test_frames_are_repeated_and_swapped_but_stay_whole() -> None:
    async with through(2) as (link, writer, arrived, _):
        link.mischief = Mischief(delay_ms=1.0, duplicate=0.5, reorder=0.3)
        sent = [frame(number) for number in range(100)]
        writer.write(b"".join(sent))
        await until_size(arrived, len(b"".join(sent)))
        await asyncio.sleep(0.3)
        found = []
        left = bytes(arrived)
        while left:
            size = 4 + int.from_bytes(left[:4], "big")
            found.append(left[:size])
            left = left[size:]
        assert found[:2] == sent[:2]
        assert set(found) >= set(sent[:-1])
        assert link.done["duplicate"] > 0
        assert link.done["reorder"] > 0


async def test_a_truncated_frame_is_the_last_of_its_connection() -> None:
    async with through(3) as (link, writer, arrived, over):
        link.mischief = Mischief(truncate=1.0)
        writer.write(frame(1) + frame(2) + frame(333_333))
        async with asyncio.timeout(60):
            await over.wait()
        assert arrived.startswith(frame(1) + frame(2))
        assert len(arrived) < len(frame(1) + frame(2) + frame(333_333))


async def test_a_cut_link_refuses_until_it_is_healed() -> None:
    async with through(4) as (link, _, _, over):
        await asyncio.sleep(0.1)
        link.cut()
        async with asyncio.timeout(60):
            await over.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        over.clear()
        link.heal()
        _, again = await asyncio.open_connection("127.0.0.1", link.port)
        again.write(frame(7))
        await asyncio.sleep(0.2)
        again.transport.abort()
