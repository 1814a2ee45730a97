"""What a worker carries and the broker's side of it, joined: the far socket is a transport like any other."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.broker.federated import until

from geomq.broker.workers.carrying import FULL_BYTES, Carried, Carrying
from geomq.broker.workers.frames import KIND, Cutter, Gathering, Order, Report
from geomq.broker.workers.remote import UNREAD_BYTES_MAX, Remote, RemoteTransport
from geomq.errors import ProtocolError

pytestmark = pytest.mark.anyio


class Visitor:
    """A protocol that notes what happens to it."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.came: list[bytes] = []
        self.events: list[str] = []
        self.fails = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        if self.fails:
            raise RuntimeError("fell over")
        self.came.append(data)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost" if error is None else "broken")


class Joined:
    """Both sides; `held` lets what one says reach the other only when it is asked for."""

    def __init__(self) -> None:
        loop = self.loop = asyncio.get_running_loop()
        self.ready = 0
        self.held = False
        self._sockets: list[socket.socket] = []
        self.remote = Remote(loop, due=lambda: loop.call_soon(self.to_worker), ready=self._is_ready, name="1")
        self.carrying = Carrying(due=lambda: loop.call_soon(self.to_broker), establish=self._establish)

    def _is_ready(self) -> None:
        self.ready += 1

    def to_worker(self) -> None:
        self.carrying.obey(_entries(self.remote.gathering))

    def to_broker(self) -> None:
        if self.held:
            self.carrying.waits(FULL_BYTES + 1)
            return
        for entry in _entries(self.carrying.gathering):
            self.remote.hear(entry)
        self.carrying.waits(0)

    def _establish(self, carried: Carried, tls: object) -> None:
        came = self._sockets.pop(0)
        task = self.loop.create_task(_connect(carried, came))
        carried.establish(task)
        task.add_done_callback(lambda task: self._established(task, carried, came))

    def _established(self, task: "asyncio.Future[Any]", carried: Carried, came: socket.socket) -> None:
        if task.cancelled():
            came.close()
            self.carrying.ended(carried.number, broken=True)

    async def client(self) -> tuple[Visitor, socket.socket]:
        """A connection, and the client's end of it."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        visitor = Visitor()
        transport = self.remote.offer(visitor, "local")
        self._sockets.append(ours)
        self.remote.hand_over(transport, None)
        await until(lambda: "made" in visitor.events)
        return visitor, theirs

    async def read(self, client: socket.socket, count: int) -> bytes:
        found = b""
        while len(found) < count and (data := await self.loop.sock_recv(client, 1 << 20)):
            found += data
        return found


async def _connect(carried: Carried, came: socket.socket) -> None:
    await asyncio.get_running_loop().connect_accepted_socket(lambda: carried, came)


def _entries(gathering: Gathering) -> list[tuple[int, bytes]]:
    cutter, data, found = Cutter(), gathering.take(), []
    while data:
        space = cutter.space()
        count = min(len(data), len(space))
        space[:count], data = data[:count], data[count:]
        cutter.filled(count)
        found += list(cutter.entries())
    return found


@pytest.fixture
async def joined() -> AsyncIterator[Joined]:
    made = Joined()
    yield made
    for carried in tuple(made.carrying.connections.values()):
        carried.abort()
    await until(lambda: not made.carrying.connections)


async def test_bytes_go_both_ways(joined: Joined) -> None:
    visitor, client = await joined.client()
    other, second = await joined.client()
    with client, second:
        await joined.loop.sock_sendall(client, b"from a client")
        await until(lambda: visitor.came == [b"from a client"])
        for each in (visitor, other):
            each.transport.write(b"to both")
        visitor.transport.write(memoryview(b" and to one"))
        assert await joined.read(client, 18) == b"to both and to one"
        assert await joined.read(second, 7) == b"to both"
        assert visitor.transport.get_extra_info("peername") == "local"


async def test_what_comes_while_it_is_not_read_waits_and_goes_first(joined: Joined) -> None:
    visitor, client = await joined.client()
    with client:
        visitor.transport.pause_reading()
        await joined.loop.sock_sendall(client, b"x" * (UNREAD_BYTES_MAX + 1))
        carried = joined.carrying.connections[visitor.transport.number]
        await until(lambda: not carried.transport.is_reading())
        await joined.loop.sock_sendall(client, b"later")
        assert visitor.came == []
        visitor.transport.resume_reading()
        await until(lambda: b"".join(visitor.came) == b"x" * (UNREAD_BYTES_MAX + 1) + b"later")


async def test_what_a_client_sent_before_it_left_is_taken_in_first(joined: Joined) -> None:
    visitor, client = await joined.client()
    visitor.transport.pause_reading()
    await joined.loop.sock_sendall(client, b"last words")
    client.close()
    await until(lambda: not joined.remote.transports)
    assert (visitor.came, visitor.events) == ([], ["made"])
    visitor.transport.resume_reading()
    await until(lambda: visitor.events == ["made", "lost"])
    assert visitor.came == [b"last words"]


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_connection_that_is_not_read_and_gone_can_be_ended(joined: Joined, end: str) -> None:
    visitor, client = await joined.client()
    visitor.transport.pause_reading()
    await joined.loop.sock_sendall(client, b"last words")
    client.close()
    await until(lambda: not joined.remote.transports)
    getattr(visitor.transport, end)()
    await until(lambda: visitor.events == ["made", "lost"])
    visitor.transport.resume_reading()
    visitor.transport.abort()
    await asyncio.sleep(0)
    assert (visitor.came, visitor.events) == ([], ["made", "lost"])


async def test_what_is_written_before_the_end_still_goes(joined: Joined) -> None:
    visitor, client = await joined.client()
    with client:
        visitor.transport.write(b"farewell")
        visitor.transport.close()
        visitor.transport.write(b"nothing more")
        assert await joined.read(client, 99) == b"farewell"
        await until(lambda: visitor.events == ["made", "lost"])
        assert not joined.carrying.connections


async def test_a_client_that_does_not_read_stalls_and_flows_again(joined: Joined) -> None:
    visitor, client = await joined.client()
    with client:
        visitor.transport.set_write_buffer_limits(10_000, 2_500)
        sent = 0
        while "pause" not in visitor.events:
            visitor.transport.write(b"x" * 10_000)
            sent += 10_000
            await asyncio.sleep(0)
        assert len(await joined.read(client, sent)) == sent
        await until(lambda: visitor.events == ["made", "pause", "resume"])


async def test_a_client_that_does_not_read_and_leaves_is_lost_at_once(joined: Joined) -> None:
    visitor, client = await joined.client()
    visitor.transport.set_write_buffer_limits(10_000, 2_500)
    while "pause" not in visitor.events:
        visitor.transport.write(b"x" * 10_000)
        await asyncio.sleep(0)
    visitor.transport.pause_reading()
    client.close()
    await until(lambda: visitor.events[-1] in ("lost", "broken"))
    assert not joined.remote.transports


async def test_clients_are_not_read_while_the_broker_has_enough(joined: Joined) -> None:
    visitor, client = await joined.client()
    with client:
        joined.held = True
        await joined.loop.sock_sendall(client, b"first")
        await until(lambda: joined.carrying.full)
        await joined.loop.sock_sendall(client, b" second")
        carried = joined.carrying.connections[visitor.transport.number]
        await until(lambda: not carried.transport.is_reading())
        joined.held = False
        joined.to_broker()
        assert carried.transport.is_reading()
        await until(lambda: b"".join(visitor.came) == b"first second")


async def test_a_protocol_that_falls_over_costs_its_own_connection_alone(joined: Joined) -> None:
    troubles: list[Any] = []
    joined.loop.set_exception_handler(lambda _, context: troubles.append(context["exception"]))
    visitor, client = await joined.client()
    other, second = await joined.client()
    with client, second:
        visitor.fails = True
        await joined.loop.sock_sendall(client, b"x")
        await until(lambda: "lost" in visitor.events)
        await joined.loop.sock_sendall(second, b"y")
        await until(lambda: other.came == [b"y"])
    assert [str(trouble) for trouble in troubles] == ["fell over"]


async def test_all_connections_end_with_their_worker(joined: Joined) -> None:
    visitors = [await joined.client() for _ in range(3)]
    visitors[0][0].transport.pause_reading()
    joined.remote.lose_all()
    assert [visitor.events for visitor, _ in visitors] == [["made", "broken"]] * 3
    visitors[0][0].transport.close()
    for _, client in visitors:
        client.close()


async def test_a_connection_may_end_before_it_is_established(joined: Joined) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    visitor = Visitor()
    transport = joined.remote.offer(visitor, "local")
    joined._sockets.append(ours)
    joined.remote.hand_over(transport, None)
    transport.write(b"nobody is there yet")
    transport.close()
    with theirs:
        await until(lambda: visitor.events in (["lost"], ["broken"]))
        assert not joined.carrying.connections


async def test_pings_are_answered(joined: Joined) -> None:
    joined.remote.gathering.say(Order.PING)
    await until(lambda: joined.ready > 0)
    assert joined.ready == 1


def test_nonsense_is_refused() -> None:
    carrying = Carrying(due=lambda: None, establish=lambda carried, tls: None)
    with pytest.raises(ProtocolError):
        carrying.obey([(99 * KIND, b"")])


async def test_reports_of_no_kind_are_refused(joined: Joined) -> None:
    with pytest.raises(ProtocolError):
        joined.remote.hear((99 * KIND, b""))
    joined.remote.hear((Report.CLOSED * KIND + 77, b""))  # of a connection that has ended
    assert isinstance(joined.remote.offer(Visitor(), None), RemoteTransport)
