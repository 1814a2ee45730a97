"""One connection between two brokers: names are proved, hostile bytes end it."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.broker.certificates import Authority
from tests.broker.federated import until

from geomq.broker.peers.channel import Credentials, PeerChannel
from geomq.broker.peers.frames import LONG_BYTES_MIN
from geomq.broker.sockets.accepting import open_server
from geomq.routing.core.messages import ForwardEvent, Message, PutLocation, SyncBegin, SyncEnd
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.core.plan import Batched, EventBatch
from geomq.routing.federation.edition_messages import OfEdition
from geomq.routing.wire.frames import PROTOCOL_VERSION, Aside, Described, LooseBatch, Ping, encode_frame
from geomq.routing.wire.link import Ack, Data, Frame, Run

pytestmark = pytest.mark.anyio
KEY = b"a shared key of enough bytes"
LONG_EVENT = ForwardEvent(Event(EventId(BrokerId("a"), 1, 1), "t", ClientId("c"), None, None, bytes(1000), qos=1))
LONG_BATCH = EventBatch(1, 0, (Batched(ClientId("c"), None, 1, 1, True, None, 1000),), (bytes(1000),))


class Side:
    """Notes what happens on one end."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.peers: list[str | None] = []
        self.frames: list[Frame | Aside] = []
        self.reasons: list[str] = []
        self.refused: list[tuple[Message, str]] = []
        self.channel: PeerChannel | None = None
        self.made_here = 0
        self._wanted = wanted

    def made(self, channel: PeerChannel) -> None:
        assert channel.peer is None
        self.made_here += 1

    def opened(self, channel: PeerChannel) -> bool:
        self.peers.append(channel.peer)
        self.channel = channel
        return self._wanted

    def heard(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        self.frames.append(frame)

    def unsent(self, peer: BrokerId, message: Message, reason: str) -> None:
        assert peer == "b"
        self.refused.append((message, reason))

    def closed(self, channel: PeerChannel, reason: str) -> None:
        self.reasons.append(reason)


async def connected(
    a: Side,
    b: Side,
    *,
    keys: tuple[bytes | None, bytes | None] = (KEY, KEY),
    names: tuple[str, str] = ("a", "b"),
    expected: str | None = "b",
) -> asyncio.Server:
    """Connect two ends; `a` dials."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: PeerChannel(Credentials(names[1], keys[1]), b, expected=None, frame_bytes_max=1000), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    dial = PeerChannel(Credentials(names[0], keys[0]), a, expected=expected, frame_bytes_max=1000)
    await loop.create_connection(lambda: dial, "127.0.0.1", port)
    await until(lambda: bool((a.peers and b.peers) or a.reasons))
    return server


async def test_two_brokers_with_the_same_key_understand_each_other() -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    for number in range(5):
        a.channel.send(Ack(1, number))
    a.channel.send(Ping(9))
    await until(lambda: len(b.frames) == 2)
    assert (a.peers, b.peers) == (["b"], ["a"])
    assert b.frames == [Ping(9), Ack(1, 4)], "of the acknowledgements of one turn only the last is sent"
    a.channel.send(Ack(1, 5))
    await until(lambda: b.frames[2:] == [Ack(1, 5)])
    a.channel.close("done")
    await until(lambda: bool(b.reasons))
    server.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system has no choice of congestion controls")
async def test_a_link_within_one_machine_keeps_no_pace() -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    for side in (a, b):
        assert side.channel is not None
        wire = side.channel._transport.get_extra_info("socket")
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
        side.channel.close("done")
    server.close()


@pytest.mark.parametrize(
    ("keys", "names", "expected"),
    [
        ((KEY, b"another key of enough bytes"), ("a", "b"), "b"),
        ((KEY, None), ("a", "b"), "b"),
        ((KEY, KEY), ("a", "c"), "b"),
    ],
    ids=["other key", "no key", "unexpected name"],
)
async def test_who_cannot_prove_the_right_name_is_refused(
    keys: tuple[bytes | None, bytes | None], names: tuple[str, str], expected: str | None
) -> None:
    a, b = Side(), Side()
    server = await connected(a, b, keys=keys, names=names, expected=expected)
    await until(lambda: bool(a.reasons and b.reasons))
    assert not (a.peers and b.peers)
    server.close()


async def test_a_broker_of_another_version_is_refused_by_its_version() -> None:
    side, loop = Side(), asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: PeerChannel(Credentials("b", KEY), side, expected=None, frame_bytes_max=1000), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    greeting = msgspec.msgpack.encode(["geomq", 6, "a", bytes(16)])
    writer.write(len(greeting).to_bytes(4) + greeting)
    await until(lambda: bool(side.reasons))
    assert f"'a' uses protocol version 6, this broker {PROTOCOL_VERSION}" in side.reasons[0]
    await asyncio.gather(reader.read(), return_exceptions=True)
    writer.close()
    server.close()


async def test_nobody_can_make_a_broker_prove_its_name_to_itself() -> None:
    side, loop, credentials = Side(), asyncio.get_running_loop(), Credentials("b", KEY)
    server = await loop.create_server(
        lambda: PeerChannel(credentials, side, expected=None, frame_bytes_max=1000), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    one, other = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)

    carried = asyncio.gather(carry(one[0], other[1]), carry(other[0], one[1]), return_exceptions=True)
    await until(lambda: bool(side.reasons or side.peers))
    assert side.peers == []
    assert "connected to itself" in side.reasons[0]
    for _, writer in (one, other):
        writer.close()
    server.close()
    await carried


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 100, b"\x00\x00\x00\x02hi", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x00"],
    ids=["too long", "no greeting", "http", "empty"],
)
async def test_strangers_are_cut_off(data: bytes) -> None:
    side = Side()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: PeerChannel(Credentials("b", KEY), side, expected=None, frame_bytes_max=1000), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(data)
    await until(lambda: bool(side.reasons))
    assert not side.peers
    await asyncio.gather(reader.read(), return_exceptions=True)
    writer.close()
    server.close()


async def test_a_frame_that_is_too_long_ends_the_connection() -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    a.channel._transport.write((1001).to_bytes(4, "big"))
    await until(lambda: bool(b.reasons))
    assert "too long" in b.reasons[0]
    server.close()


UNWRITABLE = ForwardEvent(LONG_EVENT.event, cast(int, object()))


@pytest.mark.parametrize(
    ("message", "reason"),
    [(LONG_EVENT, "exceed"), (OfEdition(Edition(1, "a"), LONG_BATCH), "exceed"), (UNWRITABLE, "unsupported")],
    ids=["event", "batch", "unwritable"],
)
async def test_what_cannot_be_sent_does_not_keep_the_rest_from_coming(message: Message, reason: str) -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    for number, said in enumerate((message, SyncBegin())):
        a.channel.send(Data(1, number, said))
    await until(lambda: len(b.frames) == 2 or bool(b.reasons))
    assert b.frames[1:] == [Data(1, 1, SyncBegin())]
    assert isinstance(b.frames[0], Data)
    assert [refused for refused, _ in a.refused] == [message]
    assert reason in a.refused[0][1]
    a.channel.close("done")
    await until(lambda: bool(b.reasons))
    server.close()


@pytest.mark.parametrize("encoded", [False, True])
async def test_a_run_that_is_too_long_goes_message_by_message(encoded: bool) -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    said = tuple(PutLocation(ClientId(f"{number}" * 150), None) for number in range(10))
    run = Run(1, 5, said)
    a.channel.send_all([encode_frame(run) if encoded else run])
    await until(lambda: len(b.frames) == 10 or bool(b.reasons))
    assert b.frames == [Data(1, number, message) for number, message in enumerate(said, 5)]
    a.channel.close("done")
    await until(lambda: bool(b.reasons))
    server.close()


async def test_of_a_run_only_what_cannot_be_sent_is_left_out() -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    a.channel.send(Run(1, 5, (SyncBegin(), UNWRITABLE, SyncEnd())))
    await until(lambda: len(b.frames) == 3 or bool(b.reasons))
    assert b.frames[::2] == [Data(1, 5, SyncBegin()), Data(1, 7, SyncEnd())]
    assert [message for message, _ in a.refused] == [UNWRITABLE]
    a.channel.close("done")
    await until(lambda: bool(b.reasons))
    server.close()


async def test_what_is_too_long_and_has_no_number_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    a.channel.send(Described(b"x" * 2_000))
    a.channel.send(Ping(7))
    await until(lambda: bool(b.frames))
    assert b.frames == [Ping(7)]
    assert "failed to encode a frame" in caplog.text
    a.channel.close("done")
    await until(lambda: bool(b.reasons))
    server.close()


async def test_a_batch_goes_without_a_number_unless_it_is_too_long() -> None:
    a, b = Side(), Side()
    server = await connected(a, b)
    assert a.channel is not None
    a.channel.send_all([Ack(1, 1)])
    assert not a.channel.send_loose(LONG_BATCH, None)
    assert a.channel.send_loose(EventBatch(1, 0, (), (b"some", b"thing")), Edition(2, "a"))
    await until(lambda: len(b.frames) == 2)
    first, second = b.frames
    assert isinstance(first, LooseBatch)
    assert (first.edition, bytes(first.packets), second) == (Edition(2, "a"), b"something", Ack(1, 1))
    a.channel.close("done")
    await until(lambda: bool(b.reasons))
    server.close()


async def test_an_unwanted_peer_is_cut_off() -> None:
    a, b = Side(), Side(wanted=False)
    server = await connected(a, b)
    await until(lambda: bool(b.reasons))
    assert "not expected here" in b.reasons[0]
    server.close()


@asynccontextmanager
async def encrypted(folder: Path, here: Side, there: Side, *, claimed: str = "a") -> AsyncIterator[PeerChannel]:
    """A dials b; each has a certificate of its own name."""
    authority = Authority(folder)
    made = {name: authority.issue(name) for name in ("a", "b")}
    listen = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    listen.verify_mode = ssl.CERT_REQUIRED
    listen.load_cert_chain(*made["b"])
    dial = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    dial.check_hostname = False
    dial.load_cert_chain(*made["a"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: PeerChannel(Credentials("b", None), there, expected=None, frame_bytes_max=1 << 20),
        "127.0.0.1",
        0,
        ssl=listen,
    )
    port = server.sockets[0].getsockname()[1]
    channel = PeerChannel(Credentials(claimed, None), here, expected="b", frame_bytes_max=1 << 20)
    await loop.create_connection(lambda: channel, "127.0.0.1", port, ssl=dial, server_hostname="b")
    await until(lambda: bool((here.peers and there.peers) or there.reasons))
    yield channel
    channel.close("done")
    await until(lambda: bool(there.reasons))
    server.close()


@pytest.mark.parametrize(("claimed", "accepted"), [("a", True), ("c", False)], ids=["own name", "another's name"])
async def test_a_certificate_proves_only_its_own_name(tmp_path: Path, claimed: str, accepted: bool) -> None:
    there = Side()
    async with encrypted(tmp_path, Side(), there, claimed=claimed):
        assert bool(there.peers) is accepted


async def test_long_frames_come_whole_through_encryption(tmp_path: Path) -> None:
    there = Side()
    async with encrypted(tmp_path, Side(), there) as channel:
        sizes = (300_000, 10, 70_000, 900_000, 300_000)
        for number, size in enumerate(sizes):
            batch = EventBatch(1, 2, (), (bytes([number]) * size,))
            channel.send(Data(1, number, batch))
        await until(lambda: len(there.frames) == len(sizes))
        for number, (frame, size) in enumerate(zip(there.frames, sizes, strict=True)):
            assert isinstance(frame, Data)
            assert isinstance(frame.message, EventBatch)
            if size >= LONG_BYTES_MIN:
                assert b"".join(frame.message.packets) == bytes([number]) * size


async def test_a_handshake_that_never_begins_is_known_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.peers.channel.GREETING_S_MAX", 0.2)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*Authority(tmp_path).issue("b"))
    side = Side()
    server = await open_server(
        lambda: PeerChannel(Credentials("b", None), side, expected=None, frame_bytes_max=1000),
        "127.0.0.1",
        0,
        tls=lambda: tls,
        end=None,
    )
    reader, writer = await asyncio.open_connection(*server.addresses[0])
    await until(lambda: side.made_here == 1)
    assert await reader.read() == b""
    await until(lambda: side.reasons == ["no greeting within the time limit"])
    writer.close()
    server.close()
