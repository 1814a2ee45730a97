"""Access control files: Mosquitto's rules decide alike, names cannot widen a pattern, mistakes are named."""

import tracemalloc
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.security.acl import ALL_RIGHTS, Rights, fill_pattern, parse_acl
from geomq.errors import ConfigError
from geomq.mqtt.codec.topics import filter_covers, topic_matches

FILE = """
# anonymous clients
topic read news/#
topic $SYS/broker/uptime

user alice
topic work/+/report
topic deny work/secret/report
topic write my inbox/a
topic read readwrite

user bob
topic readwrite #
topic deny private/#

pattern write sensor/%u/data
pattern read reply/%c/#
pattern deny blocked/%c
"""


def rights(user: str | None = None, client_id: str = "c1", text: str = FILE) -> Rights:
    return parse_acl(text, name="acl").rights(user=user, client_id=client_id)


def access(user: str | None, topic: str, client_id: str = "c1") -> str:
    made = rights(user, client_id)
    return ("r" if made.may_read(topic) else "-") + ("w" if made.may_write(topic) else "-")


@pytest.mark.parametrize(
    ("user", "topic", "expected"),
    [
        (None, "news/today", "r-"),
        (None, "$SYS/broker/uptime", "rw"),
        (None, "work/x/report", "--"),
        (None, "sensor/alice/data", "--"),
        (None, "reply/c1/x", "r-"),
        ("alice", "news/today", "--"),
        ("alice", "work/x/report", "rw"),
        ("alice", "work/secret/report", "--"),
        ("alice", "my inbox/a", "--"),
        ("alice", "inbox/a", "--"),
        ("alice", "sensor/alice/data", "-w"),
        ("alice", "sensor/bob/data", "--"),
        ("bob", "anything", "rw"),
        ("bob", "$SYS/x", "--"),
        ("bob", "private/x", "--"),
        ("bob", "blocked/c1", "rw"),
        ("carol", "sensor/carol/data", "-w"),
        ("carol", "work/x/report", "--"),
    ],
)
def test_the_file_decides(user: str | None, topic: str, expected: str) -> None:
    text = FILE.replace("topic write my inbox/a\n", "").replace("topic read readwrite\n", "")
    made = parse_acl(text, name="acl").rights(user=user, client_id="c1")
    for _ in range(2):
        assert ("r" if made.may_read(topic) else "-") + ("w" if made.may_write(topic) else "-") == expected


def test_topics_may_contain_spaces_and_access_words() -> None:
    assert access("alice", "my inbox/a") == "-w"
    assert access("alice", "readwrite") == "r-"


@pytest.mark.parametrize("name", ["a/b", "+", "a#", "#", ""])
def test_a_name_cannot_widen_a_pattern(name: str) -> None:
    text = "pattern sensor/%u/#\npattern reply/%c/#\n"
    made = rights(name, "ok", text)
    assert not made.may_read("sensor/other/x")
    assert not made.may_read(f"sensor/{name}/x")
    assert made.may_read("reply/ok/x")
    assert not rights("ok", name, text).may_read("reply/other/x")


def test_a_name_cannot_escape_a_denying_pattern() -> None:
    text = "pattern readwrite #\npattern deny keep/%c/#\n"
    assert rights("u", "a", text).may_read("x")
    assert not rights("u", "a", text).may_read("keep/a/x")
    assert not rights("u", "a/b", text).may_read("keep/a/b/x")


def test_a_name_that_looks_like_a_mark_is_not_filled_again() -> None:
    assert fill_pattern("a/%u/b/%c", user="%c", client_id="%u") == "a/%c/b/%u"


def test_without_a_file_everything_is_allowed() -> None:
    assert ALL_RIGHTS.all_allowed
    assert ALL_RIGHTS.may_read("$SYS/x")
    assert ALL_RIGHTS.may_write("x")
    assert ALL_RIGHTS.may_publish_into("x", None)
    assert ALL_RIGHTS.may_publish_from("x", None)
    assert not ALL_RIGHTS.fenced


def test_an_empty_file_denies_everything() -> None:
    made = rights("alice", text="")
    assert not made.may_read("x")
    assert not made.may_write("x")


def test_the_cache_of_decisions_is_bounded() -> None:
    made = rights("bob")
    for number in range(3_000):
        assert made.may_read(f"t/{number}")
    assert made._cache is not None
    assert len(made._cache) <= 1_024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topc a", "unknown keyword 'topc'; lines start with user, topic, pattern or fence"),
        ("user", "a user line needs a user name"),
        ("topic", "a topic is missing"),
        ("topic rw a/b", "unknown access 'rw'; use read, write, readwrite, subscribe or deny"),
        ("topic read a#", "filter 'a#': '#' must be the whole last level"),
        ("fence near POINT", "expected: fence [deny] into|from [on FILTER] FENCE"),
        ("fence into", "fence text is empty"),
    ],
)
def test_mistakes_are_named_by_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_acl(f"\n{text}\n", name="acl")
    assert str(caught.value) == f"acl, line 2: {message}"


@given(st.text(max_size=100) | st.lists(st.sampled_from(["user a", "topic", "fence into", "#", "%u", " ", "\n"])))
def test_any_text_is_an_acl_or_a_config_error(text: str | list[str]) -> None:
    try:
        parse_acl("".join(text), name="acl")
    except ConfigError as error:
        message = str(error)
        assert "\n" not in message


def test_the_cache_of_rights_takes_little_memory_whatever_the_topics() -> None:
    made = rights("bob")
    tracemalloc.start()
    for number in range(50):
        assert made.may_read(f"{number:05}" * 12_000)
        assert not made.may_read(f"private/{number:05}" * 6_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000


SUBSCRIBING = """
topic read #
user alice
topic subscribe work/#
topic subscribe +/news
topic deny work/secret/#
user bob
topic readwrite #
pattern deny blocked/%c/#
"""


@pytest.mark.parametrize(
    ("topic_filter", "allowed"),
    [
        ("work/#", True),
        ("work", True),
        ("work/+/a", True),
        ("work/secret/#", False),
        ("work/secret/a", False),
        ("any/news", True),
        ("+/news", True),
        ("#", False),
        ("+/+", False),
        ("news", False),
        ("$SYS/news", False),
    ],
)
def test_filters_have_to_be_covered_where_lines_say_who_may_subscribe(topic_filter: str, allowed: bool) -> None:
    assert rights("alice", text=SUBSCRIBING).may_subscribe(topic_filter) == allowed


def test_whom_no_line_is_about_subscribes_to_anything() -> None:
    for user in (None, "bob", "carol"):
        assert rights(user, text=SUBSCRIBING).may_subscribe("#")
        assert not rights(user, text=SUBSCRIBING + "pattern subscribe own/%c/#").may_subscribe("#")
        assert rights(user, "x", text=SUBSCRIBING + "pattern subscribe own/%c/#").may_subscribe("own/x/+")
    assert ALL_RIGHTS.may_subscribe("#")


def test_to_subscribe_is_not_to_read() -> None:
    assert not rights("alice", text=SUBSCRIBING).may_read("work/a")


@given(st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=4), st.booleans(), st.data())
def test_what_covers_a_filter_matches_all_its_topics(levels: list[str], ends: bool, data: st.DataObject) -> None:
    wider = "/".join([*levels, "#"] if ends else levels)
    parts = data.draw(st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=5))
    narrower = "/".join([*parts, "#"] if data.draw(st.booleans()) else parts)
    topics = ["/".join(each) for size in range(1, 7) for each in product("abc", repeat=size)]
    matched = [topic for topic in topics if topic_matches(narrower, topic)]
    assert filter_covers(wider, narrower) == all(topic_matches(wider, topic) for topic in matched)
