"""Every checker catches the bug it is there for, and keeps quiet otherwise."""

import pytest
from tests.routing.stage import circle, moved, published, row_of_squares, subscribed

from geomq.routing.core.actions import DeliverToOne
from geomq.routing.core.events import ClientGone, ClientPublished, ClientSubscribed, PeerSaid, RoutingEvent
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.federation.description import BrokerEntry, Description
from geomq.routing.federation.edition_messages import EditionReached, Phase
from geomq.routing.federation.editions import DescriptionLearned
from geomq.routing.federation.live_editions import PAUSE_MS
from geomq.routing.node import Node
from geomq.sim.checkers import BoundedState, Checker, Converged, NoDuplicates, NoLoops, OneOfEachGroup, SameAsOracle
from geomq.sim.engine import Simulation
from geomq.sim.script import Step

B1, B2 = BrokerId("b1"), BrokerId("b2")
HOMES = {"s1": B1, "s2": B2, "p": B1}


def note(text: str, *, client: str = "p", far: bool = False) -> ClientPublished:
    return ClientPublished(ClientId(client), "t", circle(60, 60, 1) if far else None, payload=text.encode())


def script() -> list[Step]:
    """Two subscribers, three events of which one is for nobody."""
    events: list[RoutingEvent] = [
        moved("s1", 5, 5),
        moved("s2", 5, 15),
        subscribed("s1", "t"),
        subscribed("s2", "t"),
        note("one"),
        note("two"),
        note("three", far=True),
    ]
    return [Step(1_000 * n, HOMES[event.client], event) for n, event in enumerate(events)]  # type: ignore[attr-defined]


def violations(strategy: str, checker: Checker, steps: list[Step] | None = None) -> list[str]:
    simulation = Simulation(row_of_squares(2), strategy, observers=[checker])
    simulation.connect_all()
    simulation.run(steps or script())
    checker.finish(simulation)
    return checker.violations


def all_checkers() -> list[Checker]:
    bounded = BoundedState(entries_per_subscription=4)
    return [NoDuplicates(), SameAsOracle(from_ms=0), NoLoops(hops_max=4), OneOfEachGroup(from_ms=0), bounded]


@pytest.mark.parametrize(
    "strategy", ["flood_events", "flood_subscriptions", "disgb_events", "dht", "adaptive", "digests"]
)
def test_checkers_have_nothing_to_say_of_a_sound_strategy(strategy: str) -> None:
    for checker in all_checkers():
        assert violations(strategy, checker) == [], type(checker).__name__


def test_a_subscriber_that_is_forgotten_is_missed() -> None:
    assert violations("tests.sim.planted:Forgetful", SameAsOracle(from_ms=0)) == [
        "event one did not reach s2",
        "event two did not reach s2",
    ]


def test_over_lossy_links_events_of_qos_0_may_be_lost_but_go_to_nobody_else() -> None:
    assert violations("tests.sim.planted:Forgetful", SameAsOracle(from_ms=0, lossy=True)) == []
    assert violations("tests.sim.planted:Gossip", SameAsOracle(from_ms=0, lossy=True)) != []


def test_a_change_that_not_all_have_followed_is_noticed() -> None:
    simulation = Simulation(row_of_squares(2), "dht")
    simulation.connect_all()
    behind, ahead = simulation.nodes[B1], simulation.nodes[B2]
    assert isinstance(ahead, Node)
    entries = tuple(BrokerEntry(name, (5.0, 5.0 + at), f"{name}:1") for at, name in enumerate(("b1", "b2")))
    described = Description(entries, strategy="flood_events", edition=Edition(1, "b2"), routing=Edition(1, "b2"))
    ahead.handle(DescriptionLearned(described), now=0)
    checker = Converged()
    checker.finish(simulation)
    assert checker.violations == [
        "b1 follows edition as configured, not 1:b2",
        "b2 still changes: adopted, it waits for b1",
    ]
    assert isinstance(behind, Node)
    behind.handle(DescriptionLearned(described), now=0)
    for node, peer in ((behind, B2), (ahead, B1)):
        for phase in Phase:
            node.handle(PeerSaid(peer, EditionReached(Edition(1, "b2"), phase)), now=0)
        node.on_deadline(now=PAUSE_MS)
    checker = Converged()
    checker.finish(simulation)
    assert checker.violations == []


def test_a_delivery_to_somebody_who_should_not_have_it_is_noticed() -> None:
    assert violations("tests.sim.planted:Gossip", SameAsOracle(from_ms=0)) == [
        "event three should not have reached s1, s2",
    ]


def test_only_the_given_span_is_compared() -> None:
    assert violations("tests.sim.planted:Forgetful", SameAsOracle(from_ms=5_000)) == ["event two did not reach s2"]
    checker = SameAsOracle(from_ms=0, until_ms=5_000)
    assert violations("tests.sim.planted:Forgetful", checker) == ["event one did not reach s2"]


def test_a_second_delivery_is_noticed() -> None:
    found = violations("tests.sim.planted:Stutterer", NoDuplicates())
    assert [line.split(" at ")[0] for line in found] == [
        "s1 received b1:0:1 again",
        "s2 received b1:0:1 again",
        "s1 received b1:0:2 again",
        "s2 received b1:0:2 again",
    ]


def test_a_loop_is_noticed_by_its_hops_and_by_its_repetition() -> None:
    found = violations("tests.sim.planted:Juggler", NoLoops(hops_max=8))
    assert "b1:0:1 made 9 hops" in found
    assert "b1:0:1 went 20 times from b1 to b2" in found


def test_repetition_is_noticed_without_any_hop() -> None:
    assert "b1:0:1 went 20 times from b1 to b2" in violations("tests.sim.planted:Repeater", NoLoops(hops_max=8))


def test_what_is_never_forgotten_is_noticed() -> None:
    clients = [ClientId(f"c{number}") for number in range(40)]
    steps = [Step(n, B1, subscribed(client, "t")) for n, client in enumerate(clients)]
    steps += [Step(1_000 + n, B1, ClientGone(client)) for n, client in enumerate(clients)]
    hoarded = violations("tests.sim.planted:Hoarder", BoundedState(entries_per_subscription=4), steps)
    assert hoarded == ["b2 keeps 40 entries, more than 8"]
    assert violations("flood_subscriptions", BoundedState(entries_per_subscription=4), steps) == []


def test_an_event_before_the_span_that_arrives_in_it_surprises_nobody() -> None:
    steps = [*script()[:4], Step(4_000, B1, published("p", "t")), Step(4_001, B1, note("two"))]
    assert violations("flood_events", SameAsOracle(from_ms=4_001), steps) == []


@pytest.mark.parametrize(
    ("served", "said"),
    [
        ([], "event one went to nobody of crew, not to one of s1, s2"),
        (["s1", "s2"], "event one went to s1, s2 of crew, not to one of s1, s2"),
        (["s3"], "event one went to s3 of crew, not to one of s1, s2"),
        (["s2"], None),
    ],
)
def test_a_share_group_that_is_not_served_once_is_noticed(served: list[str], said: str | None) -> None:
    checker = OneOfEachGroup(from_ms=0)
    for member in ("s1", "s2"):
        checker.acted(0, B1, ClientSubscribed(ClientId(member), "t", None, "crew"))
    checker.acted(1, B1, note("one"))
    event = Event(EventId(B1, 0, 1), "t", ClientId("p"), None, None, b"one")
    for member in served:
        checker.handled(2, B1, "deadline", [DeliverToOne(event, "crew", "t", (ClientId(member),))])
    checker.finish(Simulation(row_of_squares(2), "dht"))
    assert checker.violations == ([] if said is None else [said])
