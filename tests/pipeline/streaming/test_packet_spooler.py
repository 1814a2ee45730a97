"""Sorting bytes, without a broker: wherever they are cut, whatever they are, and what a repeat becomes."""

from pathlib import Path

import pytest
from tests.pipeline.streaming.test_receiver import rows

from geomq.errors import ProtocolError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5, V311
from geomq.pipeline.streaming.packet_spooler import PacketSpooler, content_of
from geomq.pipeline.streaming.spool import Spool


def packet(payload: bytes, packet_id: int, *, dup: bool = False, expiry: int | None = None) -> bytes:
    properties = Properties(message_expiry_interval=expiry)
    return encode(Publish("t", payload, 1, False, dup, packet_id, properties), V5)


def test_bytes_may_be_cut_anywhere(tmp_path: Path) -> None:
    data = b"".join([packet(b"x" * size, 1 + size) for size in (0, 1, 200, 20_000)]) + b"\xd0\0"
    spool = Spool(tmp_path, keep=10)
    packet_spooler, rest = PacketSpooler(spool, V5, holds=False), b""
    for i in range(0, len(data), 97):
        rest += data[i : i + 97]
        rest = rest[packet_spooler.take(rest).end :]
    assert rest == b""
    assert [len(payload) for _, payload in rows_after(spool)] == [0, 1, 200, 20_000]
    spool.close()


def rows_after(spool: Spool) -> list[tuple[str, bytes]]:
    spool.sync()
    return rows(spool)


def test_a_repeat_whose_acknowledgement_may_be_lost_keeps_its_id(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    taken = PacketSpooler(spool, V5, holds=False).take(packet(b"a", 1, expiry=9) + packet(b"b", 2))
    assert b"".join(acks for _, acks in taken.acks) == b"\x40\x02\0\x01\x40\x02\0\x02"
    spool.sync()
    # The connection broke: the first comes again, the second identifier is used for something new.
    repeated = packet(b"a", 1, dup=True, expiry=3) + packet(b"c", 2, dup=True) + packet(b"d", 3)
    PacketSpooler(spool, V5, holds=False).take(repeated)
    ids, payloads = zip(*rows_after(spool), strict=True)
    assert payloads == (b"a", b"b", b"a", b"c", b"d")
    assert ids[0] == ids[2]
    assert len(set(ids)) == 4
    spool.close()


def test_a_repeat_may_come_behind_something_new(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    PacketSpooler(spool, V5, holds=True).take(packet(b"a", 1))
    spool.sync()
    PacketSpooler(spool, V5, holds=True).take(packet(b"b", 2) + packet(b"a", 1, dup=True))
    assert [payload for _, payload in rows_after(spool)] == [b"a", b"b"]
    spool.close()


def test_identifiers_of_a_session_the_broker_forgot_mean_nothing_in_the_next(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    PacketSpooler(spool, V5, holds=True).take(packet(b"old", 1))
    spool.sync()
    # The first packet of the new session got lost with its connection, so it comes as a repeat.
    PacketSpooler(spool, V5, holds=True, since=spool.end).take(packet(b"new", 1, dup=True))
    assert [payload for _, payload in rows_after(spool)] == [b"old", b"new"]
    spool.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x32\xff\xff\xff\xff\x01",
        b"\x32\x02\xff\xff",
        b"\x32\x00",
        b"\x36\x05\0\1t\0\1",
        b"\x32\xff\xff\xff\x7f",
    ],
)
def test_nonsense_ends_the_connection(data: bytes, tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    with pytest.raises(ProtocolError):
        PacketSpooler(spool, V5, holds=False).take(data)
    assert spool.chunks == []
    spool.close()


def test_what_is_no_publish_is_for_the_session(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    others: list[bytes] = []
    data = b"\xd0\0" + packet(b"a", 1) + b"\xe0\x01\x8e" + packet(b"b", 2) + b"\x90\x03\0\x01"
    taken = PacketSpooler(spool, V5, holds=False, other=others.append).take(data)
    assert others == [b"\xd0\0", b"\xe0\x01\x8e"]
    assert (taken.end, taken.events) == (len(data) - 4, 2)
    spool.close()


def test_a_fingerprint_ignores_properties_but_not_the_payload() -> None:
    assert content_of(packet(b"a", 1, expiry=3), V5) == content_of(packet(b"a", 1, dup=True), V5)
    assert content_of(packet(b"a", 1), V5) != content_of(packet(b"b", 1), V5)
    plain = encode(Publish("t", b"a", 1, packet_id=1), V311)
    assert content_of(plain, V311) == content_of(packet(b"a", 1), V5)
