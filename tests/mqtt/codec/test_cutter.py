"""Where packets begin and end, against the decoder that reads them whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.mqtt.codec.cutter import NOT_PLAIN, body_bounds, plain_publish
from geomq.mqtt.codec.decode import decode_publish
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.faults import MqttError
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V5, V311

versions = st.sampled_from([V311, V5])
events = st.builds(
    lambda topic, payload, qos, expiry: Publish(
        topic, payload, qos, packet_id=7 * qos, properties=Properties(message_expiry_interval=expiry)
    ),
    st.text("ab/", min_size=1, max_size=200),
    st.sampled_from([b"", b"x", b"y" * 120, b"z" * 16_300, b"z" * 16_400]),
    st.sampled_from([0, 1]),
    st.sampled_from([None, None, 5]),
)


@given(versions, events, st.data())
@settings(max_examples=400)
def test_a_plain_publish_is_cut_as_the_decoder_reads_it(version: int, event: Publish, data: st.DataObject) -> None:
    wire = bytearray(b"\xc0\0" + encode(event, version) + b"\x30")
    if data.draw(st.booleans()):
        wire[data.draw(st.integers(3, min(len(wire) - 2, 12)))] = data.draw(st.integers(0, 255))
    buf, end = bytes(wire), data.draw(st.sampled_from([len(wire), len(wire) - 1, len(wire) - 2]))
    body, topic_end, payload, stop = plain_publish(buf, 2, end, version == V5, 2 * event.qos + (version == V5))
    assert plain_publish(memoryview(buf), 2, end, version == V5, 2 * event.qos + (version == V5)) == (
        body,
        topic_end,
        payload,
        stop,
    )
    if not stop:
        return
    assert stop <= end
    assert body_bounds(buf, 2, PACKET_SIZE_MAX, strict=True) == (body, stop)
    try:
        read = decode_publish(buf, event.qos << 1, body, stop, version, TopicNames())
    except MqttError:
        return  # the topic or the packet identifier, which are not looked at here
    assert read.properties is NO_PROPERTIES
    assert (read.topic.encode(), read.payload) == (buf[body + 2 : topic_end], buf[payload:stop])


@given(versions, st.text("ab/", min_size=1, max_size=20), st.sampled_from([0, 1, 100, 127, 128, 16_000]), st.booleans())
def test_every_plain_publish_that_is_all_there_is_cut(version: int, topic: str, size: int, acked: bool) -> None:
    wire = encode(Publish(topic, b"x" * size, int(acked), packet_id=7 * acked), version)
    assert plain_publish(wire, 0, len(wire), version == V5, 2 * acked + (version == V5))[3] == len(wire)
    assert plain_publish(wire, 0, len(wire) - 1, version == V5, 2 * acked + (version == V5)) == NOT_PLAIN


@pytest.mark.parametrize(
    ("wire", "new"),
    [
        ("30", False),
        ("3000 c000 c000", False),
        ("3001 00 c000 c000", False),
        ("3002 0001 61", False),
        ("3083 00 0001 61", False),
        ("3083 8000 0001 61", False),
        ("3003 0001 61", True),
        ("3006 0001 61 02 0101", True),
    ],
    ids=["one byte", "no body", "half a length", "topic too long", "long form", "longer", "cut off", "properties"],
)
def test_the_rest_is_left_to_the_decoder(wire: str, new: bool) -> None:
    data = bytes.fromhex(wire)
    assert plain_publish(data, 0, len(data), new, int(new)) == NOT_PLAIN
