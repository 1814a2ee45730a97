"""Topic rules, and the trie against the plain matcher."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import TopicError
from geomq.mqtt.codec.topics import (
    LEVELS_MAX,
    TopicNames,
    TopicTrie,
    check_filter,
    check_topic,
    first_level,
    split_shared,
    topic_matches,
    wildcard_pattern,
)

_levels = st.sampled_from(["", "a", "b", "$x", "$"])
topics = st.lists(_levels, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(_levels | st.just("+"), max_size=4))
    if not levels or draw(st.booleans()):
        levels.append(draw(st.sampled_from(["#", "a", "+"])))
    return "/".join(levels) or "a"


def _reference(wanted: list[str], levels: list[str], *, top: bool = True) -> bool:
    """The specification's rules, written as a recursion."""
    if not wanted:
        return not levels
    if top and levels[0].startswith("$") and wanted[0] in "+#" and wanted[0]:
        return False
    if wanted[0] == "#":
        return True
    return bool(levels) and wanted[0] in ("+", levels[0]) and _reference(wanted[1:], levels[1:], top=False)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/#", "sport", True),
        ("#", "anything/at/all", True),
        ("#", "$SYS/x", False),
        ("+/monitor", "$SYS/monitor", False),
        ("$SYS/#", "$SYS/monitor", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("a/$x", "a/$x", True),
        ("a/+", "a/$x", True),
    ],
)
def test_the_specification_s_examples_hold(topic_filter: str, topic: str, expected: bool) -> None:
    assert topic_matches(topic_filter, topic) is expected


@given(filters(), topics)
def test_matching_agrees_with_the_recursive_rules(topic_filter: str, topic: str) -> None:
    assert topic_matches(topic_filter, topic) == _reference(topic_filter.split("/"), topic.split("/"))


@given(st.lists(st.tuples(st.booleans(), filters()), max_size=25), topics)
def test_the_trie_finds_exactly_the_matching_filters(steps: list[tuple[bool, str]], topic: str) -> None:
    trie: TopicTrie[str] = TopicTrie()
    model: dict[str, str] = {}
    for add, topic_filter in steps:
        if add:
            trie.put(topic_filter, topic_filter)
            model[topic_filter] = topic_filter
        else:
            trie.remove(topic_filter)
            model.pop(topic_filter, None)
    assert sorted(trie.match(topic)) == sorted(each for each in model if topic_matches(each, topic))
    assert dict(trie.items()) == model
    assert len(trie) == len(model)
    assert all(trie.get(each) == each for each in model)


@given(st.sets(filters(), max_size=25), topics)
def test_the_trie_finds_filters_that_end_early_first_and_wildcards_before_what_the_topic_says(
    wanted: set[str], topic: str
) -> None:
    trie: TopicTrie[str] = TopicTrie()
    for each in wanted:
        trie.put(each, each)
    found = trie.match(topic)
    assert found == sorted(found, key=lambda each: _place(each, topic))


def _place(topic_filter: str, topic: str) -> tuple[int, tuple[bool, ...], bool]:
    """After how many levels a match is found, which of them are no wildcards, and whether `#` does it."""
    levels, end = topic_filter.split("/"), len(topic.split("/"))
    many = levels[-1] == "#"
    kept = levels[:-1] if many else levels
    return len(kept) if many else end, tuple(level != "+" for level in kept), many


def test_levels_between_which_no_filters_part_take_no_memory_of_their_own() -> None:
    sizes = []
    for levels in (3, 100):
        tracemalloc.start()
        trie: TopicTrie[int] = TopicTrie()
        for number in range(1_000):
            trie.put("/".join(["a", str(number), *["x"] * (levels - 2)]), number)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert sizes[1] < sizes[0] + 1_000 * 2_000


@pytest.mark.parametrize("bad", ["", "a/+", "#", "a\0b", "/" * LEVELS_MAX, "x" * 65_536, "é" * 40_000])
def test_bad_topics_are_refused(bad: str) -> None:
    with pytest.raises(TopicError):
        check_topic(bad)


@pytest.mark.parametrize("bad", ["", "a#", "#/a", "a+/b", "+a", "a/#/b", "a\0", "/" * LEVELS_MAX])
def test_bad_filters_are_refused(bad: str) -> None:
    with pytest.raises(TopicError):
        check_filter(bad)


def test_shared_filters_are_split() -> None:
    assert split_shared("$share/g/a/+") == ("g", "a/+")
    assert split_shared("$shared/g/a") == (None, "$shared/g/a")
    for bad in ("$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/#/a"):
        with pytest.raises(TopicError):
            split_shared(bad)


def test_the_first_level_is_known_unless_it_is_a_wildcard() -> None:
    assert first_level("a/b") == "a"
    assert first_level("+/b") is None
    assert first_level("#") is None


def test_remembered_names_stay_bounded() -> None:
    names = TopicNames()
    for number in range(3 * TopicNames.COUNT_MAX):
        assert names[b"t/%d" % number] == f"t/{number}"
    assert len(names) <= TopicNames.COUNT_MAX
    long = b"x" * 1_000
    assert names[long] == "x" * 1_000
    assert long not in names
    for bad in (b"a/#", b"\xff", b""):
        with pytest.raises(TopicError):
            names[bad]


@pytest.mark.parametrize(
    ("topic_filter", "pattern"),
    [("a/b/c", ""), ("a/+/c", ".+"), ("b/+", ".+"), ("#", "#"), ("a/+/#", ".+#"), ("a/b/#", "..#"), ("+/+/c", "++")],
)
def test_a_pattern_is_where_the_wildcards_are(topic_filter: str, pattern: str) -> None:
    assert wildcard_pattern(topic_filter) == pattern


@given(st.lists(filters(), unique=True, max_size=30), topics)
def test_a_topic_matches_at_most_one_filter_of_a_pattern(wanted: list[str], topic: str) -> None:
    patterns = [wildcard_pattern(each) for each in wanted if topic_matches(each, topic)]
    assert len(patterns) == len(set(patterns))
