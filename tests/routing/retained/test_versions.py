"""Brokers that heard the same changes of retained events agree on them."""

from hypothesis import given
from hypothesis import strategies as st

from geomq.routing.core.model import TIME_MAX, BrokerId, Version
from geomq.routing.retained.versions import RetainedVersions

versions = st.builds(Version, st.integers(0, 5), st.sampled_from([BrokerId("a"), BrokerId("b"), BrokerId("c")]))
changes = st.lists(st.tuples(st.sampled_from(["t", "u", "v/w"]), versions), max_size=30)


def known(heard: list[tuple[str, Version]]) -> RetainedVersions:
    found = RetainedVersions()
    for topic, version in heard:
        found.take(topic, version)
    return found


@given(heard=changes, data=st.data())
def test_order_and_repetition_do_not_matter(heard: list[tuple[str, Version]], data: st.DataObject) -> None:
    other = data.draw(st.permutations(heard + heard))
    one, two = known(heard), known(other)
    assert {topic: one.get(topic) for topic in one} == {topic: two.get(topic) for topic in two}
    assert one.digest == two.digest


@given(first=changes, second=changes)
def test_equal_digests_mean_equal_knowledge(
    first: list[tuple[str, Version]], second: list[tuple[str, Version]]
) -> None:
    one, two = known(first), known(second)
    same = {topic: one.get(topic) for topic in one} == {topic: two.get(topic) for topic in two}
    assert (one.digest == two.digest) is same


def test_a_change_made_here_is_later_than_what_was_heard_even_if_the_clock_is_behind() -> None:
    found = known([("t", Version(9_000, BrokerId("b")))])
    mine = found.next("t", BrokerId("a"), 10)
    assert found.take("t", mine)
    assert found.get("t") == Version(9_001, BrokerId("a"))


def test_there_is_room_for_so_many_topics_only() -> None:
    found = RetainedVersions(topics_max=1)
    assert found.take("t", Version(1, BrokerId("a")))
    assert not found.take("u", Version(1, BrokerId("a")))
    assert found.take("t", Version(2, BrokerId("a")))
    assert len(found) == 1


def test_no_version_is_later_than_all_times() -> None:
    found = known([("t", Version(TIME_MAX, BrokerId("b"))), ("u", Version(TIME_MAX + 1, BrokerId("b")))])
    assert found.get("u") is None
    assert found.next("t", BrokerId("c"), 10) == Version(TIME_MAX, BrokerId("c"))
    assert found.next("u", BrokerId("c"), 10) == Version(10, BrokerId("c"))
