"""Every packet of both versions survives encoding and decoding, however the bytes are cut, and garbage never
hurts.
"""

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode, encode_within
from geomq.mqtt.codec.faults import MqttError
from geomq.mqtt.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import RULES, WILL, Properties, PropertyType
from geomq.mqtt.codec.reasons import ALLOWED, FROM_CONNACK_V311, ReasonCode
from geomq.mqtt.codec.types import V5, V311, PacketType

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
levels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/+#"), min_size=0, max_size=5)
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.one_of(
    st.sampled_from(["#", "+", "+/a", "a/+/b", "a/#", "$share/g/a/#", "$SYS/#"]),
    topics.filter(lambda topic: not topic.startswith("$share")),
)
packet_ids = st.integers(1, 65_535)
versions = st.sampled_from([V311, V5])

_VALUES: dict[PropertyType, st.SearchStrategy[Any]] = {
    PropertyType.TEXT: texts,
    PropertyType.BINARY: st.binary(max_size=12),
    PropertyType.PAIR: st.tuples(texts, texts),
}
_WIDTH = {
    PropertyType.BYTE: 0xFF,
    PropertyType.TWO_BYTES: 0xFFFF,
    PropertyType.FOUR_BYTES: 0xFFFF_FFFF,
    PropertyType.VARINT: 268_435_455,
}


@st.composite
def properties_in(draw: st.DrawFn, place: int, without: frozenset[str] = frozenset()) -> Properties:
    values: dict[str, Any] = {}
    for rule in RULES:
        if place not in rule.places or rule.name in without or not draw(st.booleans()):
            continue
        if rule.name == "response_topic":
            value: st.SearchStrategy[Any] = topics
        elif rule.kind in _VALUES:
            value = _VALUES[rule.kind]
        else:
            value = st.integers(rule.minimum, min(rule.maximum, _WIDTH[rule.kind]))
        if rule.repeatable:
            many = place in rule.repeatable
            values[rule.name] = tuple(draw(st.lists(value, min_size=1, max_size=3 if many else 1)))
        else:
            values[rule.name] = draw(value)
    return Properties(**values)


def _properties(version: int, place: int, without: frozenset[str] = frozenset()) -> Any:
    return properties_in(place, without) if version == V5 else st.just(Properties())


def reasons_of(packet: PacketType, version: int) -> st.SearchStrategy[ReasonCode]:
    if version == V5:
        return st.sampled_from(list(ALLOWED[packet].values()))
    if packet is PacketType.CONNACK:
        return st.sampled_from(list(FROM_CONNACK_V311.values()))
    if packet is PacketType.SUBACK:
        return st.sampled_from([ReasonCode(code) for code in (0, 1, 2, 0x80)])
    return st.just(ReasonCode.SUCCESS)


@st.composite
def publishes(draw: st.DrawFn, version: int, side: Side) -> Publish:
    qos = draw(st.integers(0, 2))
    without = frozenset({"subscription_identifiers"}) if side is Side.SERVER else frozenset[str]()
    properties = draw(_properties(version, PacketType.PUBLISH, without))
    topic = draw(topics)
    if properties.topic_alias is not None and draw(st.booleans()):
        topic = ""
    return Publish(
        topic,
        draw(st.binary(max_size=300)),
        qos,
        draw(st.booleans()),
        bool(qos) and draw(st.booleans()),
        draw(packet_ids) if qos else 0,
        properties,
    )


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    will = None
    if draw(st.booleans()):
        will = Will(
            draw(topics),
            draw(st.binary(max_size=20)),
            draw(st.integers(0, 2)),
            draw(st.booleans()),
            draw(_properties(version, WILL)),
        )
    username = draw(st.none() | texts)
    password = draw(st.none() | st.binary(max_size=9)) if username is not None or version == V5 else None
    properties = draw(_properties(version, PacketType.CONNECT))
    if properties.authentication_method is None and properties.authentication_data is not None:
        properties = Properties()
    clean, keep_alive = draw(st.booleans()), draw(st.integers(0, 65_535))
    return Connect(draw(texts), version, clean, keep_alive, will, username, password, properties)


@st.composite
def requests(draw: st.DrawFn, version: int) -> SubscribeRequest:
    topic_filter, qos = draw(filters), draw(st.integers(0, 2))
    if version == V311:
        return SubscribeRequest(topic_filter, qos)
    no_local = draw(st.booleans()) and not topic_filter.startswith("$share/")
    return SubscribeRequest(topic_filter, qos, no_local, draw(st.booleans()), draw(st.integers(0, 2)))


@st.composite
def packets_to(draw: st.DrawFn, side: Side, version: int) -> Packet:
    """Any packet that `side` may read after the handshake began."""
    shared: list[st.SearchStrategy[Any]] = [
        publishes(version, side),
        *(
            st.builds(make, packet_ids, reasons_of(make.type, version), _properties(version, make.type))
            for make in (Puback, Pubrec, Pubrel, Pubcomp)
        ),
        st.builds(
            Disconnect,
            reasons_of(PacketType.DISCONNECT, version),
            _properties(version, PacketType.DISCONNECT),
        ),
    ]
    if version == V5:
        named = st.builds(Properties, authentication_method=texts, authentication_data=st.binary(max_size=5))
        shared += [st.builds(Auth, reasons_of(PacketType.AUTH, version), named), st.just(Auth())]
    some_filters = st.lists(filters, min_size=1, max_size=3).map(tuple)
    if side is Side.SERVER:
        some_requests = st.lists(requests(version), min_size=1, max_size=3).map(tuple)
        own: list[st.SearchStrategy[Any]] = [
            st.builds(Subscribe, packet_ids, some_requests, _properties(version, PacketType.SUBSCRIBE)),
            st.builds(Unsubscribe, packet_ids, some_filters, _properties(version, PacketType.UNSUBSCRIBE)),
            st.just(Pingreq()),
        ]
    else:
        codes = st.lists(reasons_of(PacketType.SUBACK, version), min_size=1, max_size=3).map(tuple)
        uncodes = st.lists(reasons_of(PacketType.UNSUBACK, version), min_size=1, max_size=3).map(tuple)
        own = [
            st.builds(
                Connack,
                st.booleans(),
                reasons_of(PacketType.CONNACK, version),
                _properties(version, PacketType.CONNACK),
            ),
            st.builds(Suback, packet_ids, codes, _properties(version, PacketType.SUBACK)),
            st.builds(
                Unsuback,
                packet_ids,
                uncodes if version == V5 else st.just(()),
                _properties(version, PacketType.UNSUBACK),
            ),
            st.just(Pingresp()),
        ]
    packet: Packet = draw(st.one_of(*shared, *own))
    return packet


@st.composite
def streams(draw: st.DrawFn) -> tuple[Side, int, list[Packet]]:
    side, version = draw(st.sampled_from(Side)), draw(versions)
    packets = draw(st.lists(packets_to(side, version), max_size=6))
    if side is Side.SERVER:
        packets.insert(0, draw(connects(version)))
    return side, version, packets


def _decoder(side: Side, version: int) -> Decoder:
    return Decoder(side, version=None if side is Side.SERVER else version)


@given(st.data())
@settings(max_examples=100)
def test_a_connect_survives_the_wire(data: st.DataObject) -> None:
    packet = data.draw(connects(data.draw(versions)))
    assert list(Decoder().feed(encode(packet, packet.version))) == [packet]


@given(streams())
@settings(max_examples=150)
def test_every_packet_survives_the_wire(stream: tuple[Side, int, list[Packet]]) -> None:
    side, version, packets = stream
    wire = b"".join(encode(packet, version) for packet in packets)
    assert list(_decoder(side, version).feed(wire)) == packets


@given(streams(), st.data())
@settings(max_examples=60)
def test_the_same_packets_come_out_however_the_bytes_are_cut(
    stream: tuple[Side, int, list[Packet]], data: st.DataObject
) -> None:
    side, version, packets = stream
    wire = b"".join(encode(packet, version) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=12)))
    decoder = _decoder(side, version)
    found: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += decoder.feed(wire[start:end])
    assert found == packets


def _outcome(side: Side, version: int | None, chunks: list[bytes]) -> tuple[list[Packet], ReasonCode | None]:
    decoder = Decoder(side, version=version, size_max=5_000)
    found: list[Packet] = []
    try:
        for chunk in chunks:
            for packet in decoder.feed(chunk):
                found.append(packet)  # noqa: PERF402
    except MqttError as error:
        return found, error.reason
    return found, None


@given(st.sampled_from(Side), st.sampled_from([None, V311, V5]), st.binary(max_size=60))
@settings(max_examples=500)
def test_random_bytes_give_packets_or_a_fault(side: Side, version: int | None, wire: bytes) -> None:
    whole = _outcome(side, version, [wire])
    assert _outcome(side, version, [bytes((byte,)) for byte in wire]) == whole


@given(streams(), st.data())
@settings(max_examples=120)
def test_damaged_packets_give_packets_or_a_fault(stream: tuple[Side, int, list[Packet]], data: st.DataObject) -> None:
    side, version, packets = stream
    wire = bytearray(b"".join(encode(packet, version) for packet in packets) or b"\0")
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    start = None if side is Side.SERVER else version
    cut = data.draw(st.integers(0, len(wire)))
    whole = _outcome(side, start, [bytes(wire)])
    assert _outcome(side, start, [bytes(wire[:cut]), bytes(wire[cut:])]) == whole


@given(streams())
@settings(max_examples=60)
def test_what_was_decoded_encodes_to_packets_that_decode_alike(
    stream: tuple[Side, int, list[Packet]],
) -> None:
    side, version, packets = stream
    for packet in packets:
        if not isinstance(packet, Connect):
            wire = encode(packet, version)
            (again,) = Decoder(side, version=version).feed(wire)
            assert encode(again, version) == wire


@pytest.mark.parametrize("version", [V311, V5])
def test_answers_shed_their_explanations_to_fit(version: int) -> None:
    explained = Puback(7, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="x" * 100))
    assert len(encode_within(explained, version, 1000)) == (109 if version == V5 else 4)
    short = encode_within(explained, version, 20)
    assert short == (b"\x40\x03\x00\x07\x87" if version == V5 else b"\x40\x02\x00\x07")
    assert encode_within(explained, version, 3) == b""
    assert encode_within(Publish("t", b"x" * 50), version, 40) == b""


def test_encodings_equal_those_of_paho() -> None:
    paho: Any = importlib.import_module("paho.mqtt.properties")
    theirs = paho.Properties(PacketType.PUBLISH)
    theirs.MessageExpiryInterval = 30
    theirs.ContentType = "text/plain"
    theirs.UserProperty = [("a", "1"), ("b", "2")]
    ours = Properties(message_expiry_interval=30, content_type="text/plain", user_properties=(("a", "1"), ("b", "2")))
    wire = encode(Publish("t/x", b"hi", 1, packet_id=513, properties=ours), V5)
    body = b"\0\3t/x" + b"\2\1" + theirs.pack() + b"hi"
    assert wire == b"\x32" + bytes((len(body),)) + body
