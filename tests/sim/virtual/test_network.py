"""What goes wrong between two hosts: cuts, broken connections, mistreated frames."""

import asyncio

import pytest
from tests.sim.virtual.stage import FRAMED, HOST, Program, connected, frame, play, until, virtual

from geomq.sim.virtual.loop import VirtualLoop
from geomq.sim.virtual.network import FAIR, Weather


def test_while_a_path_is_cut_bytes_wait_and_then_arrive_in_order() -> None:
    loop = virtual()

    async def story() -> None:
        client, server = await connected(loop)
        path = loop.network.path("c", "b")
        path.cut()
        client.transport.write(b"one")
        client.transport.write(b"two")
        server.transport.write(b"back")
        await asyncio.sleep(30.0)
        assert (server.got, client.got) == (b"", b"")
        path.heal()
        await asyncio.sleep(1.0)
        assert (server.got, client.got) == (b"onetwo", b"back")

    play(loop, story)


def test_a_path_may_be_cut_in_one_direction() -> None:
    loop = virtual()

    async def story() -> None:
        client, server = await connected(loop)
        loop.network.path("c", "b").cut("c")
        client.transport.write(b"lost in the post")
        server.transport.write(b"still there")
        await asyncio.sleep(5.0)
        assert (server.got, client.got) == (b"", b"still there")

    play(loop, story)


def test_nobody_answers_over_a_cut_path_and_nobody_listens_on_a_free_port() -> None:
    loop = virtual()

    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await loop.network.connect(Program, HOST, 99, source="c")
        loop.network.path("c", "b").cut()
        before = loop.now
        with pytest.raises(TimeoutError):
            await loop.network.connect(Program, HOST, 99, source="c")
        assert loop.now - before > 10.0

    play(loop, story)


def test_a_broken_connection_ends_at_both_ends() -> None:
    loop = virtual()

    async def story() -> None:
        client, server = await connected(loop)
        loop.network.reset_all(loop.network.path("c", "b"))
        await asyncio.sleep(1.0)
        assert (client.notes, server.notes) == (["reset"], ["reset"])
        assert not loop.network.live

    play(loop, story)


async def _send_frames(weather: Weather, count: int) -> tuple[Program, list[bytes]]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    client, server = await connected(loop, port=FRAMED)
    path = loop.network.path("c", "b")
    path.weather = weather
    for number in range(count):
        client.transport.write(frame(b"%03d" % number))
        await asyncio.sleep(0.05)
    path.weather = FAIR
    client.transport.write(frame(b"end"))
    await asyncio.sleep(1.0)
    bodies = [server.got[at + 4 : at + 7] for at in range(0, len(server.got), 7)]
    return server, bodies


def test_frames_are_repeated_and_swapped_but_never_lost_and_greetings_pass_untouched() -> None:
    loop = virtual()

    async def story() -> list[bytes]:
        return (await _send_frames(Weather(repeat=0.3, swap=0.3), 100))[1]

    bodies = play(loop, story)
    assert bodies[:2] == [b"000", b"001"]
    assert set(bodies) == {b"%03d" % number for number in range(100)} | {b"end"}
    assert len(bodies) > 110
    assert bodies != sorted(bodies)


def test_a_truncated_frame_ends_its_connection() -> None:
    loop = virtual()

    async def story() -> Program:
        return (await _send_frames(Weather(truncate=0.2), 100))[0]

    server = play(loop, story)
    assert server.notes == ["reset"]
    assert len(server.got) < 7 * 101
    assert len(server.got) >= 14


def test_a_frame_written_in_pieces_is_one_frame() -> None:
    loop = virtual()

    async def story() -> bytes:
        client, server = await connected(loop, port=FRAMED)
        for byte in frame(b"000") + frame(b"001") + frame(b"abc"):
            client.transport.write(bytes((byte,)))
        await until(lambda: len(server.got) == 21)
        return server.got

    assert play(loop, story) == frame(b"000") + frame(b"001") + frame(b"abc")
