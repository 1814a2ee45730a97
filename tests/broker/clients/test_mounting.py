"""What stands before topics and filters of clients at a mount point."""

import pytest

from geomq.broker.clients.mounting import mounted_filter, mounted_topic, mounted_will
from geomq.errors import TopicError
from geomq.mqtt.codec.packets import Will


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("a/b", "site/a/b"),
        ("/a", "site//a"),
        ("$SYS/uptime", "site/$SYS/uptime"),
        ("$geo/location", "$geo/location"),
        ("$geo/fence/home", "$geo/fence/home"),
        ("$geo/to/home/a/b", "$geo/to/home/site/a/b"),
    ],
)
def test_events_get_the_mount_point_and_orders_to_the_broker_do_not(topic: str, expected: str) -> None:
    assert mounted_topic("site/", topic) == expected
    assert mounted_topic("", topic) == topic


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("#", "site/#"),
        ("+/b", "site/+/b"),
        ("$SYS/#", "site/$SYS/#"),
        ("$share/g/a/#", "$share/g/site/a/#"),
        ("$geo/from/home/a", "$geo/from/home/site/a"),
        ("$share/g/$geo/from/home/a", "$share/g/$geo/from/home/site/a"),
        ("$geo/errors", "$geo/errors"),
    ],
)
def test_filters_get_the_mount_point_behind_the_names_of_groups_and_fences(topic_filter: str, expected: str) -> None:
    assert mounted_filter("site/", topic_filter) == expected
    assert mounted_filter("", topic_filter) == topic_filter


def test_wills_get_it_too() -> None:
    assert mounted_will("site/", Will("gone", b"x", 1)) == Will("site/gone", b"x", 1)
    assert mounted_will("site/", None) is None


def test_what_becomes_too_long_is_refused() -> None:
    long = "x" * 65_535
    for make in (mounted_topic, mounted_filter):
        with pytest.raises(TopicError):
            make("site/", long)
