"""WebSocket frames and upgrades, without a socket."""

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.config.settings import Listener
from geomq.broker.connections.websocket import BadFrame, BadRequest, FrameReader, accept_upgrade, frame

HEAD = (
    "GET /mqtt HTTP/1.1\r\nHost: broker.example:9001\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt"
)
PLAIN = Listener(kind="websocket")


def _masked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    mask = os.urandom(4)
    whole = frame(opcode, payload)
    head = bytearray(whole[: len(whole) - len(payload)])
    head[0] = (head[0] if final else head[0] & 0x7F) & 0xFF
    head[1] |= 0x80
    return bytes(head) + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


def test_the_sample_of_the_rfc_is_accepted() -> None:
    answer = accept_upgrade(HEAD.encode(), PLAIN)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("GET", "POST", "405"),
        ("HTTP/1.1", "HTTP/1.0", "405"),
        ("Upgrade: websocket", "Upgrade: h2c", "426"),
        ("keep-alive, Upgrade", "close", "426"),
        ("Version: 13", "Version: 8", "426"),
        ("Protocol: mqtt", "Protocol: chat", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short", "400"),
        ("Host:", "Host", "400"),
        ("GET /mqtt", "GET", "400"),
        ("GET /mqtt", "GET /é", "400"),
        ("GET /mqtt", "GET //[", "400"),
        ("Host: ", "Host: [", "400"),
    ],
)
def test_other_requests_are_refused(old: str, new: str, status: str) -> None:
    with pytest.raises(BadRequest) as caught:
        accept_upgrade(HEAD.replace(old, new, 1).encode(), PLAIN)
    assert caught.value.args[0].startswith(status)


@pytest.mark.parametrize(
    ("origins", "origin", "good"),
    [
        ((), None, True),
        ((), "https://broker.example", True),
        ((), "https://evil.example", False),
        ((), "null", False),
        (("https://app.example",), "https://app.example", True),
        (("https://app.example",), "https://broker.example", False),
        (("*",), "https://evil.example", True),
        ((), "https://[", False),
    ],
)
def test_pages_must_come_from_an_allowed_origin(origins: tuple[str, ...], origin: str | None, good: bool) -> None:
    head = HEAD if origin is None else f"{HEAD}\r\nOrigin: {origin}"
    listener = Listener(kind="websocket", origins=origins)
    if good:
        accept_upgrade(head.encode(), listener)
    else:
        with pytest.raises(BadRequest):
            accept_upgrade(head.encode(), listener)


@pytest.mark.parametrize(
    ("host", "origins", "origin", "good"),
    [
        ("evil.example:9001", (), "http://evil.example:9001", False),
        ("evil.example:9001", ("http://evil.example:9001",), "http://evil.example:9001", True),
        ("localhost:9001", (), "http://localhost:8000", True),
        ("127.0.0.1:9001", (), "http://127.0.0.1:9001", True),
        ("[::1]:9001", (), "http://[::1]:9001", True),
        ("evil.example", (), None, True),
    ],
)
def test_a_page_whose_name_was_pointed_at_this_machine_does_not_reach_a_loopback_listener(
    host: str, origins: tuple[str, ...], origin: str | None, good: bool
) -> None:
    head = HEAD.replace("broker.example:9001", host) + ("" if origin is None else f"\r\nOrigin: {origin}")
    for bound in ("localhost", "127.0.0.1"):
        listener = Listener(kind="websocket", host=bound, origins=origins)
        if good:
            accept_upgrade(head.encode(), listener)
        else:
            with pytest.raises(BadRequest):
                accept_upgrade(head.encode(), listener)


def test_a_listener_can_insist_on_its_path() -> None:
    accept_upgrade(HEAD.encode(), Listener(kind="websocket", path="/mqtt"))
    with pytest.raises(BadRequest):
        accept_upgrade(HEAD.encode(), Listener(kind="websocket", path="/other"))


@given(st.lists(st.binary(max_size=200), max_size=6), st.data())
def test_payload_comes_out_whole_however_it_is_framed_and_cut(payloads: list[bytes], data: st.DataObject) -> None:
    wire = b""
    for payload in payloads:
        cut = data.draw(st.integers(0, len(payload)))
        if data.draw(st.booleans()):
            wire += _masked(2, payload[:cut], final=False) + _masked(9, b"ping") + _masked(0, payload[cut:])
        else:
            wire += _masked(2, payload)
    reader = FrameReader()
    found: list[tuple[int, bytes]] = []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += reader.feed(wire[start:end])
    assert b"".join(piece for opcode, piece in found if opcode == 2) == b"".join(payloads)
    assert all(piece == b"ping" for opcode, piece in found if opcode == 9)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_of_every_length_form_are_read_back(size: int) -> None:
    assert b"".join(piece for _, piece in FrameReader().feed(_masked(2, bytes(size)))) == bytes(size)


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(2, b"unmasked"), 1002),
        (_masked(1, b"text"), 1003),
        (_masked(0, b"nothing to continue"), 1002),
        (_masked(3, b"reserved"), 1002),
        (_masked(9, b"ping", final=False), 1002),
        (_masked(9, bytes(126)), 1002),
        (b"\xc2\x80\0\0\0\0", 1002),
        (b"\x82\xff" + b"\xff" * 8 + bytes(4), 1002),
    ],
    ids=["unmasked", "text", "orphan", "reserved", "split ping", "long ping", "extension", "endless"],
)
def test_broken_frames_are_refused(wire: bytes, code: int) -> None:
    with pytest.raises(BadFrame) as caught:
        FrameReader().feed(wire)
    assert caught.value.args[0] == code


@given(st.binary(max_size=100))
def test_random_bytes_give_frames_or_a_refusal(wire: bytes) -> None:
    reader = FrameReader()
    with contextlib.suppress(BadFrame):
        assert all(isinstance(piece, bytes) for _, piece in reader.feed(wire))
    with contextlib.suppress(BadRequest):
        accept_upgrade(wire, PLAIN)
