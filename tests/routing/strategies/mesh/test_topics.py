"""Topics, their groups and the map between them."""

import pytest

from geomq.errors import ConfigError
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.mesh.messages import NAME_MAX, TopicMap
from geomq.routing.strategies.mesh.topics import MAP_MAX, WILD, TopicGroups, check_groups, is_sound, level_of

ME = BrokerId("me")


def always(_: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("topic_filter", "level"),
    [("a/b", "a"), ("a", "a"), ("/a", ""), ("#", WILD), ("+/b", WILD), ("$SYS/#", "$SYS"), ("a/#", "a")],
)
def test_the_first_level_of_a_filter_decides(topic_filter: str, level: str) -> None:
    assert level_of(topic_filter) == level


def test_a_level_the_map_does_not_name_is_its_own_group() -> None:
    topics = TopicGroups({"a": "letters", "b": "letters"}, 1, ME)
    assert [topics.group_of(level) for level in ("a", "b", "c", "")] == ["letters", "letters", "c", ""]


def test_levels_longer_than_a_name_are_grouped_by_their_beginning() -> None:
    topics = TopicGroups({}, 1, ME)
    assert topics.group_of("x" * 60_000) == topics.group_of("x" * 50_000) == "x" * NAME_MAX


def test_only_the_first_subscription_of_a_group_and_the_end_of_the_last_are_news() -> None:
    topics = TopicGroups({"a": "letters", "b": "letters"}, 1, ME)
    assert topics.add("a/x", always) == "letters"
    assert topics.add("a/y", always) is None
    assert topics.add("b/#", always) is None
    assert topics.wanted() == ("letters",)
    assert topics.remove("a/x") is None
    assert topics.remove("a/y") is None
    assert topics.remove("b/#") == "letters"
    assert topics.wanted() == ()


def test_a_group_there_is_no_room_for_is_served_by_the_wildcard_group() -> None:
    topics = TopicGroups({}, 1, ME)
    assert topics.add("a", lambda group: group == WILD) == WILD
    assert topics.remove("a") == WILD


def test_another_map_finds_every_subscription_its_group() -> None:
    topics = TopicGroups({}, 1, ME)
    topics.add("a", always)
    topics.add("b", always)
    topics.adopt(TopicMap(2, BrokerId("x"), (("a", "letters"), ("b", "letters"))), always)
    assert topics.wanted() == ("letters",)
    assert topics.as_message() == TopicMap(2, BrokerId("x"), (("a", "letters"), ("b", "letters")))


def test_without_a_map_there_is_nothing_to_advertise() -> None:
    assert TopicGroups({}, 1, ME).as_message() is None


@pytest.mark.parametrize(
    ("groups", "complaint"),
    [
        ({"a/b": "x"}, "'a/b' is not one topic level"),
        ({"+": "x"}, "'\\+' is not one topic level"),
        ({"a": ""}, "'' is not a group name"),
        ({"a": "#management"}, "'#management' is not a group name"),
        ({"a": "x" * (NAME_MAX + 1)}, "longer than 1024 characters"),
        ({str(number): "x" for number in range(MAP_MAX + 1)}, "at most 4096 can be mapped"),
    ],
)
def test_a_map_that_cannot_be_is_refused(groups: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_groups(groups)
    assert not is_sound(TopicMap(1, ME, tuple(groups.items())))


@pytest.mark.parametrize("news", [TopicMap(0, ME, ()), TopicMap(2**60, ME, ()), TopicMap(1, BrokerId(""), ())])
def test_a_map_with_an_impossible_stamp_is_unsound(news: TopicMap) -> None:
    assert not is_sound(news)
