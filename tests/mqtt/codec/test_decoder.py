"""The decoder refuses each kind of bad input with the reason code the specification names."""

import os
import time
import tracemalloc

import pytest

from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.faults import MqttError, ProtocolViolation
from geomq.mqtt.codec.packets import Connect, Packet, Publish
from geomq.mqtt.codec.properties import REPEATED_MAX, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.codec.wire import varint

MALFORMED, PROTOCOL = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
TOPIC, FILTER = ReasonCode.TOPIC_NAME_INVALID, ReasonCode.TOPIC_FILTER_INVALID
DEEP = b"/" * 200
ALIAS, VERSION = ReasonCode.TOPIC_ALIAS_INVALID, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


def _fault(wire: bytes, version: int | None, side: Side = Side.SERVER) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        list(Decoder(side, version=version).feed(wire))
    return caught.value.reason


CONNECTS = {
    "another protocol name": ("100c 0006 4d5149736471 03 02 003c", VERSION),
    "version 3": ("100c 0004 4d515454 03 02 003c 0000", VERSION),
    "version 6": ("100d 0004 4d515454 06 02 003c 00 0000", VERSION),
    "MQTT 3.1.1 under the name of 3.1": ("100c 0006 4d5149736470 04 02 003c", VERSION),
    "a bridge of version 6": ("100c 0004 4d515454 86 02 003c 0000", VERSION),
    "the reserved flag": ("100c 0004 4d515454 04 03 003c 0000", MALFORMED),
    "will QoS without will": ("100c 0004 4d515454 04 0a 003c 0000", MALFORMED),
    "will retain without will": ("100c 0004 4d515454 04 22 003c 0000", MALFORMED),
    "will QoS 3": ("1011 0004 4d515454 04 1e 003c 0000 0001 61 0000", MALFORMED),
    "3.1.1 password without user": ("100e 0004 4d515454 04 42 003c 0000 0000", MALFORMED),
    "will topic with a wildcard": ("1011 0004 4d515454 04 06 003c 0000 0001 23 0000", ReasonCode.MALFORMED_PACKET),
    "empty will topic": ("1010 0004 4d515454 04 06 003c 0000 0000 0000", ReasonCode.MALFORMED_PACKET),
    "trailing bytes": ("100d 0004 4d515454 04 02 003c 0000 00", MALFORMED),
    "truncated client id": ("100c 0004 4d515454 04 02 003c 0001", MALFORMED),
    "client id with U+0000": ("100d 0004 4d515454 04 02 003c 0001 00", MALFORMED),
    "client id with a surrogate": ("100f 0004 4d515454 04 02 003c 0003 eda080", MALFORMED),
    "flags in the first byte": ("110c 0004 4d515454 04 02 003c 0000", MALFORMED),
    "receive maximum 0": ("1010 0004 4d515454 05 02 003c 03 210000 0000", PROTOCOL),
    "maximum packet size 0": ("1012 0004 4d515454 05 02 003c 05 2700000000 0000", PROTOCOL),
    "property given twice": ("1013 0004 4d515454 05 02 003c 06 210001 210001 0000", PROTOCOL),
    "request problem information 2": ("100f 0004 4d515454 05 02 003c 02 1702 0000", PROTOCOL),
    "property of another packet": ("1010 0004 4d515454 05 02 003c 03 230001 0000", MALFORMED),
    "unknown property": ("100f 0004 4d515454 05 02 003c 02 7f01 0000", MALFORMED),
    "property length beyond the end": ("100d 0004 4d515454 05 02 003c 7f 0000", MALFORMED),
    "authentication data alone": ("1011 0004 4d515454 05 02 003c 04 16000161 0000", PROTOCOL),
    "a PUBLISH first": ("3003 0001 61", PROTOCOL),
    "a PINGREQ first": ("c000", PROTOCOL),
}

AFTER_CONNECT = {
    "a second CONNECT": (V311, "100c 0004 4d515454 04 02 003c 0000", PROTOCOL),
    "packet type 0": (V5, "0000", MALFORMED),
    "AUTH in 3.1.1": (V311, "f000", MALFORMED),
    "CONNACK to a server": (V5, "2003 000000", PROTOCOL),
    "SUBACK to a server": (V5, "9004 0001 0000", PROTOCOL),
    "remaining length of five bytes": (V5, "30ffffffff7f", MALFORMED),
    "remaining length not shortest": (V5, "c08000", MALFORMED),
    "PUBLISH QoS 3": (V5, "3606 0001 61 0001 00", MALFORMED),
    "PUBLISH QoS 0 with DUP": (V311, "3803 0001 61", MALFORMED),
    "PUBLISH identifier 0": (V311, "3205 0001 61 0000", PROTOCOL),
    "PUBLISH without identifier": (V311, "3203 0001 61", MALFORMED),
    "PUBLISH topic longer than the packet": (V311, "3003 0009 61", MALFORMED),
    "PUBLISH with one byte": (V311, "3001 00", MALFORMED),
    "PUBLISH to '#'": (V5, "3004 0001 23 00", ReasonCode.MALFORMED_PACKET),
    "PUBLISH to '+'": (V311, "3003 0001 2b", ReasonCode.MALFORMED_PACKET),
    "PUBLISH to nothing in 3.1.1": (V311, "3002 0000", ReasonCode.MALFORMED_PACKET),
    "PUBLISH to 201 levels": (V5, "30cb01 00c8" + DEEP.hex() + "00", TOPIC),
    "PUBLISH to nothing without alias": (V5, "3003 0000 00", PROTOCOL),
    "PUBLISH topic not UTF-8": (V5, "3004 0001 ff 00", MALFORMED),
    "PUBLISH topic with U+0000": (V5, "3004 0001 00 00", MALFORMED),
    "PUBLISH topic overlong UTF-8": (V5, "3005 0002 c0af 00", MALFORMED),
    "PUBLISH alias 0": (V5, "3007 0001 61 03 230000", ALIAS),
    "PUBLISH two aliases": (V5, "300a 0001 61 06 230001 230001", PROTOCOL),
    "PUBLISH payload format 2": (V5, "3006 0001 61 02 0102", PROTOCOL),
    "PUBLISH subscription identifier from a client": (V5, "3006 0001 61 02 0b01", PROTOCOL),
    "PUBLISH subscription identifier 0": (V5, "3006 0001 61 02 0b00", PROTOCOL),
    "PUBLISH response topic with wildcard": (V5, "3008 0001 61 04 08000123", PROTOCOL),
    "PUBLISH property id of two bytes": (V5, "3007 0001 61 03 810001", MALFORMED),
    "PUBLISH property cut by its length": (V5, "3006 0001 61 02 2300", MALFORMED),
    "PUBACK identifier 0": (V5, "4002 0000", PROTOCOL),
    "PUBACK of one byte": (V5, "4001 00", MALFORMED),
    "PUBACK with reason in 3.1.1": (V311, "4003 0001 00", MALFORMED),
    "PUBACK with unknown reason": (V5, "4003 0001 01", MALFORMED),
    "PUBACK with flags": (V5, "4102 0001", MALFORMED),
    "PUBREL without its flags": (V5, "6002 0001", MALFORMED),
    "PUBREL with trailing bytes": (V5, "6205 0001 00 00 00", MALFORMED),
    "SUBSCRIBE without its flags": (V5, "8007 0001 00 0001 61 00", MALFORMED),
    "SUBSCRIBE identifier 0": (V5, "8207 0000 00 0001 61 00", PROTOCOL),
    "SUBSCRIBE to nothing": (V5, "8203 0001 00", PROTOCOL),
    "SUBSCRIBE without options": (V5, "8206 0001 00 0001 61", MALFORMED),
    "SUBSCRIBE QoS 3": (V5, "8207 0001 00 0001 61 03", MALFORMED),
    "SUBSCRIBE reserved option": (V5, "8207 0001 00 0001 61 40", MALFORMED),
    "SUBSCRIBE option of version 5 in 3.1.1": (V311, "8206 0001 0001 61 04", MALFORMED),
    "SUBSCRIBE retain handling 3": (V5, "8207 0001 00 0001 61 30", PROTOCOL),
    "SUBSCRIBE empty filter": (V5, "8206 0001 00 0000 00", ReasonCode.MALFORMED_PACKET),
    "SUBSCRIBE to 201 levels": (V5, "82ce01 0001 00 00c8" + DEEP.hex() + "00", FILTER),
    "SUBSCRIBE 'a#'": (V5, "8208 0001 00 0002 6123 00", ReasonCode.MALFORMED_PACKET),
    "SUBSCRIBE '#/a'": (V5, "8209 0001 00 0003 232f61 00", ReasonCode.MALFORMED_PACKET),
    "SUBSCRIBE 'a+'": (V311, "8207 0001 0002 612b 00", ReasonCode.MALFORMED_PACKET),
    "SUBSCRIBE '$share/g'": (V5, "820e 0001 00 0008" + b"$share/g".hex() + "00", ReasonCode.MALFORMED_PACKET),
    "SUBSCRIBE '$share/+/a'": (V5, "8210 0001 00 000a" + b"$share/+/a".hex() + "00", ReasonCode.MALFORMED_PACKET),
    "SUBSCRIBE shared and no-local": (V5, "8210 0001 00 000a" + b"$share/g/a".hex() + "04", PROTOCOL),
    "SUBSCRIBE two identifiers": (V5, "820b 0001 04 0b010b02 0001 61 00", PROTOCOL),
    "UNSUBSCRIBE from nothing": (V5, "a203 0001 00", PROTOCOL),
    "UNSUBSCRIBE 'a#'": (V311, "a206 0001 0002 6123", ReasonCode.MALFORMED_PACKET),
    "PINGREQ with a body": (V5, "c001 00", MALFORMED),
    "DISCONNECT with a body in 3.1.1": (V311, "e001 00", MALFORMED),
    "DISCONNECT with unknown reason": (V5, "e001 01", MALFORMED),
    "DISCONNECT trailing bytes": (V5, "e003 00 00 00", MALFORMED),
    "AUTH without method": (V5, "f002 18 00", PROTOCOL),
    "AUTH with unknown reason": (V5, "f002 01 00", MALFORMED),
}

TO_CLIENTS = {
    "CONNACK reserved flag": (V5, "2003 02 00 00", MALFORMED),
    "CONNACK code 6 in 3.1.1": (V311, "2002 00 06", MALFORMED),
    "CONNACK of one byte": (V311, "2001 00", MALFORMED),
    "CONNACK too long for 3.1.1": (V311, "2003 00 00 00", MALFORMED),
    "SUBACK without reasons": (V5, "9003 0001 00", PROTOCOL),
    "UNSUBACK without reasons": (V5, "b003 0001 00", PROTOCOL),
    "UNSUBACK with body in 3.1.1": (V311, "b003 0001 00", MALFORMED),
    "PINGRESP with a body": (V5, "d001 00", MALFORMED),
    "SUBSCRIBE to a client": (V5, "8207 0001 00 0001 61 00", PROTOCOL),
}


@pytest.mark.parametrize("name", CONNECTS)
def test_a_bad_first_packet_is_refused(name: str) -> None:
    wire, reason = CONNECTS[name]
    assert _fault(bytes.fromhex(wire), None) == reason


@pytest.mark.parametrize("name", AFTER_CONNECT)
def test_a_bad_packet_from_a_client_is_refused(name: str) -> None:
    version, wire, reason = AFTER_CONNECT[name]
    assert _fault(bytes.fromhex(wire), version) == reason


@pytest.mark.parametrize("name", TO_CLIENTS)
def test_a_bad_packet_from_a_server_is_refused(name: str) -> None:
    version, wire, reason = TO_CLIENTS[name]
    assert _fault(bytes.fromhex(wire), version, Side.CLIENT) == reason


def test_an_oversized_packet_is_refused_from_its_header_alone() -> None:
    decoder = Decoder(size_max=16_384)
    with pytest.raises(MqttError) as caught:
        list(decoder.feed(b"\x10\xff\xff\xff\x7f"))
    assert caught.value.reason == ReasonCode.PACKET_TOO_LARGE


def test_the_size_limit_can_be_raised_after_the_first_packet() -> None:
    decoder = Decoder(size_max=64)
    list(decoder.feed(encode(Connect("c"), V5)))
    decoder.size_max = 4_096
    publish = Publish("t", b"x" * 1_000)
    assert list(decoder.feed(encode(publish, V5))) == [publish]


def test_packets_before_a_fault_are_still_given() -> None:
    decoder = Decoder(version=V5)
    stream = decoder.feed(b"\xc0\x00\x00\x00")
    next(stream)
    with pytest.raises(MqttError):
        next(stream)


def test_the_version_to_answer_an_unknown_protocol_in_is_known() -> None:
    for level, answer in ((3, V311), (6, V5), (0x83, V311), (0x86, V311)):
        decoder = Decoder()
        with pytest.raises(MqttError):
            list(decoder.feed(b"\x10\x0c\x00\x04MQTT" + bytes((level,)) + b"\x02\x00\x3c\x00\x00"))
        assert decoder.version == answer


def test_a_large_packet_in_small_pieces_takes_linear_time() -> None:
    publish = Publish("t", bytes(8_000_000))
    wire = encode(publish, V311)
    decoder = Decoder(version=V311)
    started = time.process_time()
    found: list[Packet] = []
    for start in range(0, len(wire), 512):
        found += decoder.feed(wire[start : start + 512])
    assert found == [publish]
    assert time.process_time() - started < 2


def test_a_packet_carries_so_many_user_properties_and_no_more() -> None:
    most = (("a", "b"),) * REPEATED_MAX
    (packet,) = Decoder(version=V5).feed(encode(Publish("t", properties=Properties(user_properties=most)), V5))
    assert isinstance(packet, Publish)
    assert packet.properties.user_properties == most
    pairs = b"\x26\x00\x01a\x00\x01b" * (REPEATED_MAX + 1)
    body = b"\x00\x01t" + varint(len(pairs)) + pairs
    more = b"\x30" + varint(len(body)) + body
    with pytest.raises(ProtocolViolation, match="more than 1000 user_properties") as raised:
        list(Decoder(version=V5).feed(more))
    assert raised.value.reason == ReasonCode.QUOTA_EXCEEDED


def test_a_packet_that_comes_in_crumbs_takes_little_more_memory_than_its_bytes() -> None:
    wire = encode(Publish("t", os.urandom(200_000)), V5)
    decoder = Decoder(version=V5)
    pieces = [wire[at : at + 2] for at in range(0, len(wire), 2)]
    tracemalloc.start()
    for piece in pieces[:-1]:
        assert list(decoder.feed(bytes(bytearray(piece)))) == []
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * len(wire)
    assert [encode(packet, V5) for packet in decoder.feed(pieces[-1])] == [wire]
