"""Reference counts of filters and what the cloud hears of them."""

from hypothesis import given
from hypothesis import strategies as st

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.interest import ANNOUNCEMENTS, GroupInterest
from geomq.routing.strategies.groups.messages import CloudPing, CloudSubscribe, CloudUnsubscribe

A, B = BrokerId("a"), BrokerId("b")


def test_the_cloud_hears_of_a_filter_with_its_first_holder_and_its_last() -> None:
    said: list[Message] = []
    interest = GroupInterest(said.append)
    interest.add(A, "t")
    interest.add(B, "t")
    interest.add(B, "t")
    interest.drop(A, "t")
    interest.drop(A, "t")
    assert said == [CloudSubscribe("t")]
    interest.drop(B, "t")
    assert said == [CloudSubscribe("t"), CloudUnsubscribe("t")]
    assert len(interest) == 0


def test_replacing_a_holders_filters_tells_only_what_changes() -> None:
    said: list[Message] = []
    interest = GroupInterest(said.append)
    interest.replace(A, ["x", "y"])
    said.clear()
    interest.replace(A, ["y", "z"])
    assert said == [CloudSubscribe("z"), CloudUnsubscribe("x")]
    assert interest.held_by(A) == 2


def test_nothing_is_said_to_a_cloud_that_is_down_and_everything_when_it_returns() -> None:
    said: list[Message] = []
    interest = GroupInterest(said.append)
    interest.add(A, "x")
    interest.cloud_down()
    interest.add(A, "y")
    interest.drop(A, "x")
    mark = interest.mark()
    assert said == [CloudSubscribe("x")]
    said.clear()
    interest.cloud_up()
    assert said == [CloudUnsubscribe("x"), CloudSubscribe("y"), CloudPing(mark)]
    assert not interest.passed(mark)
    interest.pong(mark)
    assert interest.passed(mark)


def test_a_pong_nobody_asked_for_passes_nothing() -> None:
    interest = GroupInterest(lambda message: None)
    interest.pong(7)
    assert not interest.passed(interest.mark())


def test_a_later_pong_passes_earlier_marks() -> None:
    interest = GroupInterest(lambda message: None)
    first, second = interest.mark(), interest.mark()
    interest.pong(second)
    assert interest.passed(first)


def test_the_leaders_topic_is_not_counted_as_a_clients_filter() -> None:
    interest = GroupInterest(lambda message: None)
    interest.add(ANNOUNCEMENTS, "DG/leaders")
    assert len(interest) == 0
    assert interest.subscribed() == ("DG/leaders",)


steps = st.tuples(st.sampled_from(["add", "drop", "up", "down"]), st.sampled_from([A, B]), st.sampled_from("xyz"))


@given(st.lists(steps))
def test_the_cloud_always_ends_with_exactly_the_held_filters(script: list[tuple[str, BrokerId, str]]) -> None:
    at_cloud: set[str] = set()
    held: set[tuple[BrokerId, str]] = set()

    def hear(message: Message) -> None:
        if isinstance(message, CloudSubscribe):
            at_cloud.add(message.topic_filter)
        elif isinstance(message, CloudUnsubscribe):
            at_cloud.discard(message.topic_filter)

    interest = GroupInterest(hear)
    for what, holder, topic_filter in script:
        if what == "add":
            interest.add(holder, topic_filter)
            held.add((holder, topic_filter))
        elif what == "drop":
            interest.drop(holder, topic_filter)
            held.discard((holder, topic_filter))
        elif what == "down":
            at_cloud.clear()
            interest.cloud_down()
        else:
            interest.cloud_up()
    if not interest.up:
        interest.cloud_up()
    assert at_cloud == {topic_filter for _, topic_filter in held} == set(interest.subscribed())
