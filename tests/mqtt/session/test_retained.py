"""The retained store against a dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from geomq.mqtt.codec.topics import topic_matches
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.retained import EXPIRED_MAX, LEVEL_BYTES, PAUSE_NODES, RetainedStore

BYTES_MAX = 1 << 24
_levels = st.sampled_from(["", "a", "b", "$x"])
topics = st.lists(_levels, min_size=1, max_size=3).map("/".join).filter(bool)
filters = st.one_of(topics, st.sampled_from(["#", "+", "a/#", "+/a", "a/+/b", "$x/#", "+/+", "/#"]))


@given(st.lists(st.tuples(topics, st.none() | st.integers(1, 10)), max_size=20), filters, st.integers(0, 12))
def test_lookup_finds_exactly_the_matching_unexpired_messages(
    puts: list[tuple[str, int | None]], topic_filter: str, now: int
) -> None:
    store = RetainedStore(100, BYTES_MAX)
    model: dict[str, ApplicationMessage] = {}
    for number, (topic, expires_at) in enumerate(puts):
        message = ApplicationMessage(topic, b"%d" % number, expires_at=expires_at)
        assert store.put(message)
        model[topic] = message
    wanted = {each for each in model.values() if topic_matches(topic_filter, each.topic)}
    assert set(store.match(topic_filter, now)) == {each for each in wanted if not each.expired(now)}
    assert len(store) == len(model)
    gone = store.expire(now)
    assert sorted(gone) == sorted(topic for topic, each in model.items() if each.expired(now))
    assert set(store) == {each for each in model.values() if not each.expired(now)}


def test_a_search_that_finds_nothing_lets_others_go_on() -> None:
    store = RetainedStore(10_000, BYTES_MAX)
    for number in range(5_000):
        store.put(ApplicationMessage(f"kept/{number}"))
    steps = list(store.search("kept/+/nothing", 0.0))
    assert set(steps) == {None}
    assert len(steps) == 5_000 // PAUSE_NODES
    assert list(store.match("kept/+/nothing", 0.0)) == []


def test_a_full_store_refuses_new_topics_but_replaces_old_ones() -> None:
    store = RetainedStore(1, BYTES_MAX)
    assert store.put(ApplicationMessage("a", b"1"))
    assert not store.put(ApplicationMessage("b", b"1"))
    assert store.put(ApplicationMessage("a", b"2"))
    assert store.remove("a")
    assert not store.remove("a")
    assert not store.remove("a/b")
    assert store.put(ApplicationMessage("b", b"1"))
    assert store.get("a") is None
    assert store.get("b") == ApplicationMessage("b", b"1")


def test_expiry_records_stay_bounded_when_one_topic_is_replaced_often() -> None:
    store = RetainedStore(10, BYTES_MAX)
    for number in range(5_000):
        store.put(ApplicationMessage("a", b"", expires_at=number + 10.0))
    assert len(store._expiries) < 200
    assert store.expire(5_008.0) == []
    assert store.expire(5_009.0) == ["a"]


def test_messages_may_be_removed_while_a_lookup_runs() -> None:
    store = RetainedStore(10, BYTES_MAX)
    for name in ("a/x", "a/y", "b"):
        store.put(ApplicationMessage(name))
    seen = []
    for message in store.match("#", 0):
        seen.append(message.topic)
        store.remove(message.topic)
    assert seen == ["a/x", "a/y", "b"]


def test_large_messages_and_deep_topics_are_refused_when_there_is_no_room_for_them() -> None:
    store = RetainedStore(100, 4_000)
    assert store.put(ApplicationMessage("a", b"x" * 2_000))
    assert not store.put(ApplicationMessage("b", b"x" * 2_000))
    assert not store.put(ApplicationMessage("/".join("abcdefgh")))
    assert store.put(ApplicationMessage("b"))
    assert not store.put(ApplicationMessage("a", b"x" * 4_000))
    assert store.put(ApplicationMessage("a", b"x" * 4_000), beyond=True)
    assert store.put(ApplicationMessage("a", b"x" * 3_900))
    assert len(store) == 2


@given(st.lists(st.tuples(topics, st.integers(0, 200), st.booleans()), max_size=30))
def test_what_is_gone_occupies_nothing(steps: list[tuple[str, int, bool]]) -> None:
    store = RetainedStore(100, BYTES_MAX)
    for topic, size, stays in steps:
        if stays:
            store.put(ApplicationMessage(topic, b"x" * size))
        else:
            store.remove(topic)
    kept = list(store)
    prefixes = {tuple(each.topic.split("/")[:depth]) for each in kept for depth in range(1, each.topic.count("/") + 2)}
    assert store.bytes == sum(each.size for each in kept) + LEVEL_BYTES * len(prefixes)
    for message in kept:
        assert store.remove(message.topic)
    assert store.bytes == 0


def test_of_many_that_expire_at_once_some_are_forgotten_at_a_time_and_none_is_found() -> None:
    store = RetainedStore(10_000, 1 << 30)
    for number in range(EXPIRED_MAX + 1):
        store.put(ApplicationMessage(str(number), b"x", retain=True, expires_at=1.0))
    assert len(store.expire(2.0)) == EXPIRED_MAX
    assert list(store.match("#", 2.0)) == []
    assert len(store.expire(2.0)) == 1
    assert store.expire(2.0) == []
