"""Topics, filters and properties in messages between brokers: good ones are remembered, others refused every time."""

import pytest

from geomq.errors import GeomqError, ProtocolError
from geomq.mqtt.codec.properties import Properties, encode_properties
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX, check_topic
from geomq.mqtt.codec.types import PacketType
from geomq.routing.core.wire_checks import Known, check_of, check_properties, properties_of


def test_what_is_good_is_checked_once_and_what_is_not_every_time() -> None:
    asked: list[str] = []

    def check(topic: str) -> str:
        asked.append(topic)
        return check_topic(topic)

    checked = Known(check)
    for _ in range(2):
        assert checked["a/b"] == "a/b"
        with pytest.raises(GeomqError):
            checked["a/#"]
    assert asked == ["a/b", "a/#", "a/#"]


def test_what_is_remembered_is_bounded() -> None:
    checked = Known(check_topic, count_max=100)
    for number in range(105):
        checked[str(number)]
    checked["x" * (REMEMBERED_CHARS_MAX + 1)]
    assert len(checked) == 5


def test_properties_of_a_publisher_are_good() -> None:
    given = Properties(
        payload_format_indicator=1,
        message_expiry_interval=9,
        content_type="text",
        response_topic="a/b",
        correlation_data=b"\0",
        user_properties=(("k", "v"), ("k", "w")),
    )
    check = check_of("properties")
    assert check is not None
    for data in (b"", b"\0", encode_properties(given, PacketType.PUBLISH)):
        assert check_properties(data) is data
        assert check(data) is data
    assert properties_of(data) == given


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff",
        b"\x05\x02\0\0",
        b"\0\0",
        b"\x02\x01\x02",
        b"\x03\x21\0\x01",
        encode_properties(Properties(topic_alias=1), PacketType.PUBLISH),
        encode_properties(Properties(subscription_identifiers=(7,)), PacketType.PUBLISH),
        encode_properties(Properties(response_topic="a/#"), PacketType.PUBLISH),
    ],
    ids=["garbage", "cut short", "more behind", "wrong value", "of CONNECT", "alias", "identifier", "response topic"],
)
def test_other_properties_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        check_properties(data)


def test_most_fields_need_no_check() -> None:
    assert check_of("payload") is None
