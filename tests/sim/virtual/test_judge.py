"""What the judge calls wrong, and what it leaves alone, from ledgers written by hand."""

from collections.abc import Callable

import pytest

from geomq.sim.virtual.judge import judge
from geomq.sim.virtual.ledger import HEAL_S, SETTLE_S, Ledger
from geomq.sim.virtual.records import Circle, Place, Wish

PARIS, NICE, TOKYO = Place(48.9, 2.4), Place(43.7, 7.3), Place(35.7, 139.7)
FRANCE = Circle(PARIS, 800_000.0)


class Story:
    """A ledger and its clock. Publisher `p` and the clients `s` and `t` are connected from the start."""

    def __init__(self, *, refuses: bool = True, reroutes: bool = False) -> None:
        self.now = 0.0
        self.ledger = Ledger(lambda: self.now, lambda _: None, refuses=refuses, reroutes=reroutes)
        for client in ("p", "s", "t"):
            self.ledger.client(client, kept=True, expiry_s=3_600)
            self.ledger.admitted(client, "b0", 1, present=False, expected=False)
        self.count = 0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def wants(self, client: str, wish: Wish) -> None:
        self.ledger.asked(client, wish)
        self.wait(0.1)
        self.ledger.granted(client, wish, granted=True)

    def publishes(
        self,
        topic: str = "a",
        *,
        qos: int = 2,
        fence: Circle | None = None,
        place: Place | None = None,
        expiry_s: int | None = None,
        acknowledged: bool = True,
        broker: str = "b0",
    ) -> str:
        self.count += 1
        event = f"p:{self.count}"
        self.ledger.publishing(event, "p", topic, qos=qos, retain=False, fence=fence, expiry_s=expiry_s, deletes=False)
        self.ledger.sent(event, broker, place)
        if acknowledged and qos:
            self.wait(0.05)
            self.ledger.acknowledged(event)
        return event

    def gets(self, client: str, event: str, topic: str = "a", *, qos: int = 2, dup: bool = False, at: int = 1) -> None:
        self.wait(0.01)
        self.ledger.received(client, event, topic, qos=qos, dup=dup, retain=False, connection=at)

    def in_trouble(self, what: Callable[[], object]) -> None:
        self.ledger.trouble_begins()
        self.wait(1.0)
        what()
        self.wait(1.0)
        self.ledger.trouble_ends()
        self.wait(HEAL_S + SETTLE_S + 1.0)

    def kinds(self, *, healed: bool = True) -> list[str]:
        self.wait(100.0)
        return [violation.kind for violation in judge(self.ledger, healed=healed)]


@pytest.fixture
def story() -> Story:
    made = Story()
    made.wants("s", Wish("a", 2))
    made.wait(10.0)
    return made


def test_an_event_that_comes_once_is_right(story: Story) -> None:
    story.gets("s", story.publishes())
    assert story.kinds() == []


def test_an_acknowledged_event_that_never_comes_is_lost(story: Story) -> None:
    story.publishes()
    assert story.kinds(healed=False) == []
    assert story.kinds() == ["lost"]


def test_what_was_not_acknowledged_or_was_declined_may_be_lost(story: Story) -> None:
    story.publishes(acknowledged=False)
    story.ledger.declined(story.publishes(acknowledged=False), "QUOTA_EXCEEDED")
    assert story.kinds() == []


def test_an_event_of_qos_0_is_lost_only_in_calm_times(story: Story) -> None:
    story.in_trouble(lambda: story.publishes(qos=0))
    assert story.kinds() == []
    story.publishes(qos=0)
    assert story.kinds() == ["lost"]


def test_what_nobody_wanted_or_published_is_unexpected(story: Story) -> None:
    story.gets("s", story.publishes("other"), "other")
    story.gets("s", "p:99")
    story.gets("s", story.publishes("a"), "b")
    assert story.kinds() == ["unexpected"] * 3


def test_a_declined_event_that_comes_nevertheless_is_unexpected(story: Story) -> None:
    event = story.publishes(acknowledged=False)
    story.ledger.declined(event, "QUOTA_EXCEEDED")
    story.gets("s", event)
    assert story.kinds() == ["unexpected"]


def test_a_subscription_fence_is_about_the_publisher() -> None:
    story = Story()
    story.wants("s", Wish("a", 2, FRANCE))
    story.wait(10.0)
    story.publishes(place=NICE)
    story.publishes(place=TOKYO)
    assert story.kinds() == ["lost"]
    story.gets("s", "p:1")
    assert story.kinds() == []
    story.gets("s", "p:2")
    story.gets("s", story.publishes(place=None))
    assert story.kinds() == ["unexpected", "unexpected"]


def test_an_event_fence_is_about_the_subscriber_wherever_it_may_have_been(story: Story) -> None:
    story.ledger.moving("s", TOKYO)
    story.ledger.moved("s", TOKYO)
    story.wait(10.0)
    story.gets("s", story.publishes(fence=FRANCE))
    assert story.kinds() == ["unexpected"]
    story.ledger.moving("s", NICE)
    story.publishes(fence=FRANCE)
    assert story.kinds() == ["unexpected"]
    story.ledger.moved("s", NICE)
    story.wait(10.0)
    story.publishes(fence=FRANCE)
    assert story.kinds() == ["unexpected", "lost"]


def test_between_asking_and_knowing_either_answer_is_right() -> None:
    story = Story()
    story.ledger.asked("s", Wish("a", 2))
    story.gets("s", story.publishes())
    story.publishes()
    story.ledger.granted("s", Wish("a", 2), granted=True)
    story.publishes()
    assert story.kinds() == []
    story.publishes()
    assert story.kinds() == ["lost"]


def test_what_is_known_in_trouble_is_known_everywhere_only_after_healing(story: Story) -> None:
    def at_the_same_time() -> None:
        story.wants("t", Wish("a", 2))
        story.publishes()

    story.in_trouble(at_the_same_time)
    assert story.kinds() == ["lost"]
    story.gets("s", "p:1")
    assert story.kinds() == []


def test_a_wish_that_was_taken_back_holds_no_longer(story: Story) -> None:
    story.ledger.asked("s", Wish("a", 2, wanted=False))
    story.ledger.granted("s", Wish("a", 2, wanted=False), granted=True)
    story.gets("s", story.publishes())
    story.wait(SETTLE_S + 1.0)
    story.gets("s", story.publishes())
    assert story.kinds() == ["unexpected"]


def test_qos_2_comes_once_unless_the_publisher_could_not_know(story: Story) -> None:
    event = story.publishes()
    story.gets("s", event)
    story.ledger.ambiguous(event)
    story.gets("s", event)
    assert story.kinds() == []
    event = story.publishes()
    story.gets("s", event)
    story.gets("s", event, dup=True)
    assert story.kinds() == ["duplicate"]


def test_a_repeat_is_excused_on_another_connection_where_a_session_could_not_be_found() -> None:
    for refuses, anew, expected in ((False, True, []), (False, False, ["duplicate"]), (True, True, ["duplicate"])):
        story = Story(refuses=refuses)
        story.wants("s", Wish("a", 2))
        story.wait(10.0)
        event = story.publishes()
        story.gets("s", event)
        story.in_trouble(lambda: story.ledger.admitted("s", "b1", 2, present=not anew, expected=True))  # noqa: B023
        story.ledger.lost("s", 1)
        story.gets("s", event, at=2)
        assert [kind for kind in story.kinds() if kind != "session"] == expected


def test_qos_1_comes_twice_on_one_connection_only_in_trouble() -> None:
    story = Story()
    story.wants("s", Wish("a", 1))
    story.wait(10.0)
    event = story.publishes(qos=1)
    story.gets("s", event, qos=1)
    story.gets("s", event, qos=1)
    assert story.kinds() == ["duplicate"]


def test_the_quality_is_the_lesser_of_both() -> None:
    story = Story()
    story.wants("s", Wish("a", 1))
    story.wait(10.0)
    story.gets("s", story.publishes(qos=2), qos=2)
    assert story.kinds() == ["quality"]


def test_events_of_a_stream_come_in_order(story: Story) -> None:
    first, second = story.publishes(), story.publishes()
    story.gets("s", second)
    story.gets("s", first)
    assert story.kinds() == ["inversion"]


def test_order_is_not_judged_between_brokers_or_where_events_look_for_other_ways() -> None:
    for reroutes, brokers in ((True, ("b0", "b0")), (False, ("b0", "b1"))):
        story = Story(reroutes=reroutes)
        story.wants("s", Wish("a", 2))
        story.wait(10.0)

        def swapped(story: Story = story, brokers: tuple[str, str] = brokers) -> None:
            first, second = (story.publishes(broker=broker) for broker in brokers)
            story.gets("s", second)
            story.gets("s", first)

        story.in_trouble(swapped)
        assert story.kinds() == []


def test_an_expired_event_comes_too_late(story: Story) -> None:
    event = story.publishes(expiry_s=3)
    story.wait(10.0)
    story.gets("s", event)
    assert story.kinds() == ["expired"]


def test_one_member_of_a_group_gets_an_event() -> None:
    for served, expected in (((), ["lost"]), (("s",), []), (("s", "t"), ["duplicate"])):
        story = Story()
        for client in ("s", "t"):
            story.wants(client, Wish("$share/crew/a", 2))
        story.ledger.trouble_begins()
        story.ledger.trouble_ends()
        story.wait(HEAL_S + 10.0)
        event = story.publishes()
        for client in served:
            story.gets(client, event)
        assert story.kinds() == expected


def test_a_session_is_there_exactly_if_it_was_kept(story: Story) -> None:
    story.ledger.lost("s", 1)
    story.ledger.admitted("s", "b1", 2, present=False, expected=True)
    story.ledger.lost("t", 1)
    story.ledger.admitted("t", "b1", 2, present=True, expected=False)
    assert story.kinds() == ["session", "session"]


def test_a_session_has_to_be_gone_after_its_expiry() -> None:
    story = Story()
    story.ledger.client("e", kept=True, expiry_s=10)
    story.ledger.admitted("e", "b0", 1, present=False, expected=False)
    story.ledger.lost("e", 1)
    story.wait(30.0)
    story.ledger.admitted("e", "b0", 2, present=True, expected=True)
    assert story.kinds() == ["session"]


def test_a_client_is_connected_once(story: Story) -> None:
    story.ledger.admitted("s", "b1", 2, present=True, expected=True)
    assert story.kinds() == ["twin"]


def test_wills_come_when_their_client_is_gone_and_only_then(story: Story) -> None:
    story.wants("t", Wish("will/x", 1))
    story.wait(10.0)
    story.ledger.received("t", "will:s:1", "will/x", qos=1, dup=False, retain=False, connection=1)
    assert story.kinds() == ["will"]
    story = Story()
    story.wants("t", Wish("will/x", 1))
    story.wait(10.0)
    story.ledger.left("s", 1)
    story.ledger.lost("s", 1)
    story.ledger.received("t", "will:s:1", "will/x", qos=1, dup=False, retain=False, connection=1)
    assert story.kinds() == ["will"]


def test_a_will_reaches_who_wants_it_once() -> None:
    for times, expected in ((0, ["will"]), (1, []), (2, ["will"])):
        story = Story()
        story.wants("t", Wish("will/x", 1))
        story.wait(10.0)
        story.ledger.lost("s", 1)
        story.ledger.wills["will:s:1"] = ("will/x", story.now)
        for _ in range(times):
            story.ledger.received("t", "will:s:1", "will/x", qos=1, dup=False, retain=False, connection=1)
        assert story.kinds() == expected


def test_events_from_before_a_client_subscribed_may_come_in_any_order() -> None:
    story = Story()
    first, second = story.publishes(), story.publishes()
    story.wait(0.1)
    story.wants("s", Wish("a", 2))
    for event in (second, first):
        story.gets("s", event)
    assert story.kinds() == []
    later = story.publishes()
    last = story.publishes()
    for event in (last, later):
        story.gets("s", event)
    assert story.kinds() == ["inversion"]
