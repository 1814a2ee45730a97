"""What geo-context texts mean."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.clients.geotopics import (
    FenceTopic,
    LocationTopic,
    ToTopic,
    owntracks_location,
    parse_geo_topic,
    parse_location_payload,
    read_filter,
)
from geomq.errors import GeometryError, TopicError
from geomq.geo import Location


def test_the_topics_one_can_publish_to_are_understood() -> None:
    assert parse_geo_topic("$geo/location") == LocationTopic()
    assert parse_geo_topic("$geo/fence/home") == FenceTopic("home")
    assert parse_geo_topic("$geo/to/home/a/b") == ToTopic("home", "a/b")
    assert parse_geo_topic("$geo/to/home//a") == ToTopic("home", "/a")


@pytest.mark.parametrize(
    "topic",
    [
        "$geo/",
        "$geo/locations",
        "$geo/fence/",
        "$geo/fence/a/b",
        "$geo/to/x",
        "$geo/to/x/",
        "$geo/to//a",
        "$geo/to/x/$geo/location",
        "$geo/enter/x",
        "$geo/error",
        f"$geo/fence/{'x' * 129}",
    ],
)
def test_other_topics_mean_nothing(topic: str) -> None:
    with pytest.raises(TopicError):
        parse_geo_topic(topic)


def test_filters_are_taken_apart_and_put_together_again() -> None:
    plain = read_filter("a/#")
    assert (plain.prefix, plain.plain, plain.group, plain.fence_name, plain.private) == ("", "a/#", None, None, False)
    fenced = read_filter("$geo/from/home/a/+")
    assert (fenced.prefix, fenced.plain, fenced.fence_name) == ("$geo/from/home/", "a/+", "home")
    both = read_filter("$share/g/$geo/from/home/#")
    assert (both.group, both.fence_name, both.plain, both.private) == ("g", "home", "#", False)
    assert read_filter("$geo/enter/+").private
    assert read_filter("$share/g/$geo/enter/x").private
    assert not read_filter("#").private
    for bad in ("$geo/from/home", "$geo/from/home/", "$geo/from//a", "$geo/from/x/$geo/error", "$geo/from/x/a#"):
        with pytest.raises(TopicError):
            read_filter(bad)


@given(st.text("ab/+#$", min_size=1, max_size=12))
def test_prefix_and_plain_filter_are_always_the_whole(topic_filter: str) -> None:
    try:
        assert read_filter(topic_filter).whole == topic_filter
    except TopicError:
        assert topic_filter.startswith("$")


def test_locations_come_as_text_uri_or_owntracks() -> None:
    assert parse_location_payload(b"1.5,2.5") == Location(1.5, 2.5)
    assert parse_location_payload(b"geo:1.5,2.5") == Location(1.5, 2.5)
    assert parse_location_payload(b'{"_type":"location","lat":1.5,"lon":2.5}') == Location(1.5, 2.5)
    assert parse_location_payload(b"") is None


@given(st.binary(max_size=80) | st.text(max_size=60).map(str.encode))
def test_any_payload_is_a_location_or_refused(payload: bytes) -> None:
    for read in (parse_location_payload, owntracks_location):
        with contextlib.suppress(GeometryError):
            assert read(payload) is None or isinstance(read(payload), Location)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"_type":"location"}',
        b'{"_type":"\x80"}',
        b'{"_type":"location","lat":91,"lon":0}',
        b'{"_type":"location","lat":1e999,"lon":0}',
        b'{"_type":"location","lat":true,"lon":0}',
        b"[" * 5_000,
        b'{"a":' * 5_000,
        b'{"_type":"location","lat":1,"lon":2,"x":"' + b"y" * 20_000 + b'"}',
    ],
)
def test_nonsense_from_owntracks_is_refused(payload: bytes) -> None:
    with pytest.raises(GeometryError):
        owntracks_location(payload)


def test_other_owntracks_messages_say_nothing_about_places() -> None:
    assert owntracks_location(b'{"_type":"lwt","tst":1}') is None
