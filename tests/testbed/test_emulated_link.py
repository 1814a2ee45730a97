"""Links in user space: what they do to bytes, and to those who wait for them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from geomq.errors import UsageError
from geomq.testbed.emulated_link import RETRANSMIT_MS_MIN, Conditions, Delays, EmulatedLink

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
    finally:
        writer.close()  # also when the test is over before the other side has said so


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def linked(conditions: Conditions, *, seed: int = 1) -> AsyncIterator[tuple[EmulatedLink, Streams]]:
    """A link to a server that says everything back, and a connection through it."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with EmulatedLink(server.sockets[0].getsockname()[:2], conditions, seed=seed) as link:
        streams = await asyncio.open_connection("127.0.0.1", link.port)
        yield link, streams
        await close(streams[1])
    server.close()
    await asyncio.sleep(0.02)


def play(conditions: Conditions, act: Callable[[EmulatedLink, Streams], Awaitable[None]]) -> None:
    async def run() -> None:
        async with linked(conditions) as (link, streams):
            await asyncio.wait_for(act(link, streams), 60)

    asyncio.run(run())


def test_bytes_arrive_unchanged_and_not_before_the_latency_of_both_ways() -> None:
    async def act(link: EmulatedLink, streams: Streams) -> None:
        reader, writer = streams
        writer.write(b"warm")
        assert await reader.readexactly(4) == b"warm"
        begin = time.monotonic()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert time.monotonic() - begin >= 0.040
        assert link.bytes_carried == 18

    play(Conditions(latency_ms=20), act)


def test_a_cut_link_holds_everything_and_loses_nothing() -> None:
    async def act(link: EmulatedLink, streams: Streams) -> None:
        reader, writer = streams
        link.cut()
        writer.write(b"one")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(3), 0.1)
        link.heal()
        assert await reader.readexactly(3) == b"one"

    play(Conditions(), act)


def test_conditions_can_change_while_bytes_flow() -> None:
    async def act(link: EmulatedLink, streams: Streams) -> None:
        reader, writer = streams
        link.set(Conditions(latency_ms=60))
        begin = time.monotonic()
        writer.write(b"slow")
        assert await reader.readexactly(4) == b"slow"
        assert time.monotonic() - begin >= 0.120

    play(Conditions(), act)


def test_a_narrow_link_takes_the_time_its_bandwidth_needs() -> None:
    async def act(link: EmulatedLink, streams: Streams) -> None:
        reader, writer = streams
        begin = time.monotonic()
        writer.write(bytes(50_000))
        assert len(await reader.readexactly(50_000)) == 50_000
        assert time.monotonic() - begin >= 2 * 50_000 * 8 / 8e6 * 0.9

    play(Conditions(mbit_per_s=8), act)


def test_the_end_of_a_stream_crosses_the_link() -> None:
    async def act(link: EmulatedLink, streams: Streams) -> None:
        reader, writer = streams
        writer.write(b"last words")
        writer.write_eof()
        assert await reader.read() == b"last words"
        assert await reader.read() == b""
        for _ in range(500):
            if not link.connections:
                break
            await asyncio.sleep(0.01)
        assert link.connections == []

    play(Conditions(latency_ms=2), act)


def test_a_reset_breaks_connections_and_lets_new_ones_in() -> None:
    async def act(link: EmulatedLink, streams: Streams) -> None:
        reader, writer = streams
        writer.write(b"x")
        await reader.readexactly(1)
        link.reset()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        again, other = await asyncio.open_connection("127.0.0.1", link.port)
        other.write(b"y")
        assert await again.readexactly(1) == b"y"
        await close(other)

    play(Conditions(), act)


def test_nobody_behind_the_link_is_a_broken_connection() -> None:
    async def run() -> None:
        async with EmulatedLink(("127.0.0.1", 1)) as link:
            reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            await close(writer)

    asyncio.run(run())


def test_the_same_seed_gives_the_same_delays() -> None:
    conditions = Conditions(latency_ms=5, jitter_ms=3, mbit_per_s=10, loss=0.05)

    def times(seed: int) -> list[float]:
        delays = Delays(seed)
        return [delays.arrival_s(700, number * 0.001, conditions) for number in range(300)]

    assert times(4) == times(4)
    assert times(4) != times(5)


def test_bytes_never_overtake_each_other() -> None:
    delays = Delays(1)
    conditions = Conditions(latency_ms=5, jitter_ms=50, loss=0.1)
    out = [delays.arrival_s(1000, number * 0.001, conditions) for number in range(500)]
    assert out == sorted(out)


def test_a_lost_segment_costs_a_retransmission_and_holds_up_what_follows() -> None:
    delays, conditions = Delays(1), Conditions(latency_ms=1, loss=0.02)
    waits_ms = [(delays.arrival_s(100, number * 10.0, conditions) - number * 10.0) * 1000 for number in range(2000)]
    late = [wait for wait in waits_ms if wait > 2]
    assert len(late) == pytest.approx(0.02 * 2000, rel=0.5)
    assert min(late) == pytest.approx(1 + RETRANSMIT_MS_MIN)
    assert delays.segments_lost >= len(late)


@pytest.mark.parametrize("wrong", [{"loss": 1.0}, {"latency_ms": -1}, {"jitter_ms": float("nan")}, {"mbit_per_s": 1e9}])
def test_impossible_conditions_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="of a link must be between"):
        Conditions(**wrong)
