"""Connections in memory behave as TCP does: order, pieces, slow readers, ends."""

import asyncio

from tests.sim.virtual.stage import connected, in_process, play, process, until, virtual

from geomq.sim.virtual.network import Weather
from geomq.sim.virtual.transports import SYSTEM_BYTES


def test_bytes_arrive_in_order_however_they_are_cut() -> None:
    loop = virtual()
    sent = b"".join(b"%d," % number for number in range(500))

    async def story() -> tuple[bytes, int]:
        client, server = await connected(loop)
        loop.network.path("c", "b").weather = Weather((0.001, 0.5), split=0.5)
        for number in range(500):
            client.transport.write(b"%d," % number)
        await until(lambda: len(server.got) == len(sent))
        return server.got, server.pieces

    got, pieces = play(loop, story)
    assert got == sent
    assert pieces > 600


def test_a_reader_that_takes_nothing_in_makes_the_writer_pause_and_go_on() -> None:
    loop = virtual()

    async def story() -> list[str]:
        client, server = await connected(loop)
        client.transport.set_write_buffer_limits(1_000, 500)
        server.transport.pause_reading()
        for _ in range(SYSTEM_BYTES // 1_000):
            client.transport.write(bytes(1_000))
        assert client.transport.get_write_buffer_size() == 0
        client.transport.write(bytes(3_000))
        assert client.notes == ["pause"]
        await asyncio.sleep(60.0)
        assert (client.notes, server.got) == (["pause"], b"")
        server.transport.resume_reading()
        await asyncio.sleep(1.0)
        assert len(server.got) == 3_000 + SYSTEM_BYTES // 1_000 * 1_000
        return client.notes

    assert play(loop, story) == ["pause", "resume"]


def test_closing_lets_what_was_written_arrive_first() -> None:
    loop = virtual()

    async def story() -> None:
        client, server = await connected(loop)
        client.transport.write(b"farewell")
        client.transport.close()
        client.transport.write(b"too late")
        await asyncio.sleep(1.0)
        assert (server.got, server.notes, client.notes) == (b"farewell", ["lost"], ["lost"])

    play(loop, story)


def test_aborting_may_lose_what_is_under_way_and_nothing_else() -> None:
    lost = 0
    for seed in range(20):
        loop = virtual(seed)

        async def story(loop: object = loop) -> bytes:
            client, server = await connected(loop)  # type: ignore[arg-type]
            client.transport.write(b"early")
            await asyncio.sleep(1.0)
            client.transport.write(b"late")
            client.transport.abort()
            await asyncio.sleep(1.0)
            assert (client.notes, server.notes) == (["lost"], ["reset"])
            return server.got

        got = play(loop, story)
        assert b"earlylate".startswith(got)
        assert got.startswith(b"early")
        lost += got != b"earlylate"
    assert 0 < lost < 20


def test_nothing_follows_what_was_under_way_when_the_connection_broke() -> None:
    for seed in range(20):
        loop = virtual(seed)

        async def story(loop: object = loop) -> bytes:
            client, server = await connected(loop)  # type: ignore[arg-type]
            client.transport.write(b"under way")
            loop.network.reset(client.transport)  # type: ignore[attr-defined]
            client.transport.write(b"too late")
            client.transport.abort()
            await asyncio.sleep(1.0)
            return server.got

        assert b"under way".startswith(play(loop, story))


def test_a_killed_process_resets_its_connections_and_frees_its_address() -> None:
    loop = virtual()
    owner = process(loop)

    async def story() -> None:
        client, server = await connected(loop, owner=owner)
        owner.kill()
        await asyncio.sleep(1.0)
        assert (client.notes, server.notes) == (["reset"], [])
        in_process(process(loop), lambda: loop.network.listen(lambda: server, "10.0.0.1", 1883))

    play(loop, story)


def test_who_loses_power_says_nothing_and_its_peer_learns_of_it_by_writing_later() -> None:
    loop = virtual()
    owner = process(loop, silently=True)

    async def story() -> None:
        client, _ = await connected(loop, owner=owner)
        loop.network.down.add("b")
        owner.kill()
        client.transport.write(b"hello?")
        await asyncio.sleep(100.0)
        assert client.notes == []
        loop.network.down.discard("b")
        client.transport.write(b"hello?")
        await asyncio.sleep(1.0)
        assert client.notes == ["reset"]

    play(loop, story)


def test_what_arrives_for_a_stopped_process_waits() -> None:
    loop = virtual()
    owner = process(loop)

    async def story() -> None:
        client, server = await connected(loop, owner=owner)
        owner.stopped = True
        client.transport.write(b"anybody?")
        await asyncio.sleep(50.0)
        assert server.got == b""
        loop.resume(owner)
        await asyncio.sleep(0.1)
        assert server.got == b"anybody?"

    play(loop, story)
