"""Single steps of the protocol at broker 5, which is linked with 1, 3 and 8; 0 and 9 are farther away."""

import random

from tests.routing.strategies.mesh.mesh_world import federation_of

from geomq.routing.core.actions import Action, SendToPeer
from geomq.routing.core.events import ClientPublished, ClientSubscribed, ClientUnsubscribed, PeerDown, PeerSaid, PeerUp
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.node import Node
from geomq.routing.strategies.mesh.group import MeshGroup
from geomq.routing.strategies.mesh.mesh import Mesh
from geomq.routing.strategies.mesh.messages import (
    Announcement,
    CoreAnnouncements,
    LostRoute,
    Membership,
    MembershipAnnouncements,
    RoutesLost,
)

LINKS = [["5", "1"], ["5", "3"], ["5", "8"], ["1", "0"], ["3", "0"], ["8", "9"], ["9", "0"]]
CLIENT = ClientId("s")
B0, B1, B3, B5, B8, B9 = (BrokerId(name) for name in "013589")


class Broker5:
    """The node under test, spoken to in the words of its neighbours."""

    def __init__(self) -> None:
        self.node = Node(
            me=B5,
            federation=federation_of("013589"),
            strategy="geomq.routing.strategies.mesh.mesh:Mesh",
            options={"links": LINKS},
            rng=random.Random(0),
        )

    @property
    def group(self) -> MeshGroup:
        assert isinstance(self.node.strategy, Mesh)
        return self.node.strategy.groups["a"]

    def hears(
        self,
        neighbour: BrokerId,
        core: BrokerId,
        sequence: int,
        distance: int,
        *,
        member: bool = False,
        parents: tuple[BrokerId, ...] = (),
        now: float = 0.0,
    ) -> list[Action]:
        news = Announcement("a", core, sequence, distance, member, parents)
        return self.node.handle(PeerSaid(neighbour, CoreAnnouncements((news,))), now=now)

    def is_joined_by(self, neighbour: BrokerId, core: BrokerId) -> list[Action]:
        return self.node.handle(PeerSaid(neighbour, MembershipAnnouncements((Membership("a", core, 1),))), now=0)

    def subscribes(self) -> list[Action]:
        return self.node.handle(ClientSubscribed(CLIENT, "a"), now=0)


def announced(actions: list[Action]) -> dict[str, Announcement]:
    return {
        action.peer: item
        for action in actions
        if isinstance(action, SendToPeer) and isinstance(action.message, CoreAnnouncements)
        for item in action.message.items
    }


def memberships(actions: list[Action]) -> list[tuple[str, Membership]]:
    return [
        (action.peer, item)
        for action in actions
        if isinstance(action, SendToPeer) and isinstance(action.message, MembershipAnnouncements)
        for item in action.message.items
    ]


def asked(actions: list[Action]) -> dict[str, LostRoute]:
    return {
        action.peer: item
        for action in actions
        if isinstance(action, SendToPeer) and isinstance(action.message, RoutesLost)
        for item in action.message.items
    }


def forwarded_to(actions: list[Action]) -> list[str]:
    return [a.peer for a in actions if isinstance(a, SendToPeer) and isinstance(a.message, ForwardEvent)]


def test_an_announcement_goes_on_to_the_remaining_neighbours_one_hop_farther() -> None:
    broker = Broker5()
    news = announced(broker.hears(B1, B0, 1, 1))
    assert news == dict.fromkeys("38", Announcement("a", B0, 1, 2, False, (B1,)))
    assert announced(broker.hears(B3, B0, 1, 1)) == {}
    assert list(broker.group.parents) == ["1", "3"]


def test_an_event_from_a_neighbour_farther_from_the_core_is_passed_on() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.hears(B8, B0, 1, 3)
    event = Event(EventId(B8, 0, 1), "a", CLIENT, None, None)
    assert forwarded_to(broker.node.handle(PeerSaid(B8, ForwardEvent(event)), now=0)) == ["1"]


def test_an_event_from_a_neighbour_as_near_to_the_core_is_not() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.hears(B8, B0, 1, 2)
    event = Event(EventId(B8, 0, 1), "a", CLIENT, None, None)
    assert forwarded_to(broker.node.handle(PeerSaid(B8, ForwardEvent(event)), now=0)) == []


def test_topics_that_start_with_a_dollar_do_not_follow_the_wildcard_group() -> None:
    broker = Broker5()
    wild = CoreAnnouncements((Announcement("#", B1, 1, 0, True),))
    broker.node.handle(PeerSaid(B1, wild), now=0)
    assert forwarded_to(broker.node.handle(ClientPublished(CLIENT, "a"), now=0)) == ["1"]
    assert forwarded_to(broker.node.handle(ClientPublished(CLIENT, "$a"), now=0)) == []


def test_without_a_way_only_a_newer_announcement_is_trusted() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    lost = broker.node.handle(PeerDown(B1), now=1)
    assert asked(lost) == dict.fromkeys("38", LostRoute("a", B0, 1))
    broker.hears(B8, B0, 1, 3, now=2)
    assert broker.group.distance is None
    broker.hears(B8, B0, 2, 3, now=3)
    assert broker.group.distance == 4
    assert list(broker.group.parents) == ["8"]


def test_without_a_way_an_older_announcement_makes_the_broker_ask_for_a_newer() -> None:
    """So a core that restarted learns how far it had counted."""
    broker = Broker5()
    broker.hears(B1, B0, 7, 1)
    broker.node.handle(PeerDown(B1), now=1)
    assert asked(broker.hears(B3, B0, 2, 1, now=2)) == {"3": LostRoute("a", B0, 7)}


def test_without_a_way_a_neighbour_that_comes_up_is_asked() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.node.handle(PeerDown(B1), now=1)
    assert asked(broker.node.handle(PeerUp(B1), now=2)) == {"1": LostRoute("a", B0, 1)}


def test_a_neighbour_that_follows_another_core_is_no_way_to_ours() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.hears(B3, B0, 1, 1)
    actions = broker.hears(B1, B9, 1, 2)
    assert list(broker.group.parents) == ["3"]
    assert announced(actions)["1"].core == "0"


def test_a_neighbour_that_has_us_as_parent_is_no_parent_of_ours() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.hears(B3, B0, 1, 1)
    broker.hears(B1, B0, 2, 3, member=True, parents=(B5,))
    assert list(broker.group.parents) == ["3"]
    assert list(broker.group.children) == ["1"]


def test_a_core_only_known_to_a_neighbour_through_us_is_not_adopted_and_the_neighbour_is_told() -> None:
    broker = Broker5()
    actions = broker.hears(B1, B0, 4, 3, parents=(B5,))
    assert asked(actions) == {"1": LostRoute("a", B0, 4)}
    assert broker.node.strategy.state_size() == 0


def test_when_the_last_parents_way_became_longer_ours_did_too() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    news = announced(broker.hears(B1, B0, 2, 2))
    assert broker.group.distance == 3
    assert news["3"].distance == 3


def test_when_one_of_two_parents_ways_became_longer_the_other_is_kept() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.hears(B3, B0, 1, 1)
    assert announced(broker.hears(B1, B0, 2, 2)) == {}
    assert broker.group.distance == 2
    assert list(broker.group.parents) == ["3"]


def test_a_parent_that_is_no_longer_one_is_told_when_the_shorter_way_has_surely_formed() -> None:
    broker = Broker5()
    broker.hears(B8, B0, 1, 3)
    broker.subscribes()
    farewell = SendToPeer(B8, MembershipAnnouncements((Membership("a", B0, 1, member=False),)))
    assert farewell not in broker.hears(B1, B0, 1, 1)
    assert list(broker.group.parents) == ["1"]
    assert farewell in broker.hears(B1, B0, 2, 1)


def test_a_shorter_way_is_told_with_the_next_announcement() -> None:
    broker = Broker5()
    broker.hears(B8, B0, 1, 3)
    assert announced(broker.hears(B1, B0, 1, 1)) == {}
    assert announced(broker.hears(B1, B0, 2, 1))["8"].distance == 2


def test_a_former_parent_whose_way_leads_over_us_is_told_at_once() -> None:
    broker = Broker5()
    broker.hears(B8, B0, 1, 3)
    broker.subscribes()
    broker.hears(B1, B0, 1, 1)
    actions = broker.hears(B8, B0, 2, 3, parents=(B5,))
    assert SendToPeer(B8, MembershipAnnouncements((Membership("a", B0, 1, member=False),))) in actions


def test_a_former_parent_that_becomes_one_again_needs_no_second_membership() -> None:
    broker = Broker5()
    broker.hears(B8, B0, 1, 3)
    broker.subscribes()
    broker.hears(B1, B0, 1, 1)
    assert not memberships(broker.hears(B8, B0, 1, 1))
    assert list(broker.group.parents) == ["1", "8"]


def test_who_needs_the_mesh_no_longer_leaves_former_parents_too() -> None:
    broker = Broker5()
    broker.hears(B8, B0, 1, 3)
    broker.subscribes()
    broker.hears(B1, B0, 1, 1)
    actions = broker.node.handle(ClientUnsubscribed(CLIENT, "a"), now=1)
    assert {target for target, item in memberships(actions) if not item.member} == {"1", "8"}


def test_a_core_that_returns_counts_on_from_where_it_stopped() -> None:
    broker = Broker5()
    first = announced(broker.subscribes())["1"].sequence
    broker.node.handle(ClientUnsubscribed(CLIENT, "a"), now=1)
    assert announced(broker.subscribes())["1"].sequence == first + 1


def test_a_core_that_hears_of_its_own_past_counts_on_from_there() -> None:
    broker = Broker5()
    broker.subscribes()
    assert announced(broker.hears(B1, B5, 40, 1))["1"].sequence == 41


def test_a_member_that_is_remembered_as_a_better_core_becomes_it() -> None:
    broker = Broker5()
    broker.hears(B8, B8, 1, 0, member=True)
    broker.subscribes()
    news = announced(broker.hears(B1, B5, 6, 1))
    assert broker.group.is_core
    assert news["8"].sequence == 7


def test_who_was_in_the_mesh_of_a_former_core_gets_events_until_the_next_mesh_has_formed() -> None:
    broker = Broker5()
    broker.subscribes()
    broker.is_joined_by(B8, B5)
    broker.hears(B1, B0, 1, 1)
    assert forwarded_to(broker.node.handle(ClientPublished(CLIENT, "a"), now=1)) == ["1", "8"]
    broker.node.on_deadline(now=20_000)
    assert B8 not in broker.group.lingering


def test_news_told_late_carries_its_age() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    broker.node.handle(PeerDown(B8), now=1)
    news = announced(broker.node.handle(PeerUp(B8), now=9_000))
    assert news["8"].age_ms == 9_000


def test_a_question_is_passed_on_towards_the_core_once() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    question = RoutesLost((LostRoute("a", B0, 1),))
    assert asked(broker.node.handle(PeerSaid(B8, question), now=1)) == {"1": LostRoute("a", B0, 1)}
    assert broker.node.handle(PeerSaid(B3, question), now=2) == []


def test_a_core_answers_a_question_of_its_latest_announcement_with_the_next() -> None:
    broker = Broker5()
    broker.subscribes()
    question = RoutesLost((LostRoute("a", B5, 1),))
    assert announced(broker.node.handle(PeerSaid(B8, question), now=1))["8"].sequence == 2
    assert broker.node.handle(PeerSaid(B3, question), now=2) == []


def test_a_neighbour_that_comes_up_without_having_gone_down_may_have_forgotten_everything() -> None:
    broker = Broker5()
    broker.hears(B1, B0, 1, 1)
    assert asked(broker.node.handle(PeerUp(B1), now=1))["1"] == LostRoute("a", B0, 1)
    assert not broker.group.parents
