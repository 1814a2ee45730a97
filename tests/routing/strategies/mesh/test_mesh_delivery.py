"""Whatever clients did before, once announcements have travelled every event reaches exactly whom it should, once."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.strategies.mesh.mesh_world import Link, MeshWorld
from tests.routing.strategies.mesh.test_mesh_theorems import delays_for, overlays

from geomq.geo import Circle, Location
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    RoutingEvent,
)
from geomq.routing.core.model import ClientId
from geomq.sim.oracle import Oracle

TOPICS = ["a", "a/b", "b/c", "b/c/d", "$x/y"]
FILTERS = ["a", "a/#", "a/+", "b/c", "b/+/d", "#", "+/c", "+", "$x/#"]
PLACES = [Location(0.0, 0.0), Location(0.0, 10.0), None]
FENCES = [None, Circle(Location(0.0, 0.0), 200_000.0)]

client_numbers = st.integers(0, 7)
clients = client_numbers.map(lambda number: ClientId(f"c{number}"))
steps: st.SearchStrategy[RoutingEvent] = st.one_of(
    st.builds(ClientSubscribed, clients, st.sampled_from(FILTERS), st.sampled_from(FENCES)),
    st.builds(ClientSubscribed, clients, st.sampled_from(FILTERS)),
    st.builds(ClientUnsubscribed, clients, st.sampled_from(FILTERS)),
    st.builds(ClientMoved, clients, st.sampled_from(PLACES)),
    st.builds(ClientPublished, clients, st.sampled_from(TOPICS), st.sampled_from(FENCES)),
    st.builds(ClientGone, clients),
)
pauses = st.sampled_from([0.0, 1.0, 30.0, 6_000.0])


def home(world: MeshWorld, event: RoutingEvent) -> str:
    return world.ids[int(event.client[1:]) % len(world.ids)]  # type: ignore[attr-defined]


def check_every_event(world: MeshWorld, oracle: Oracle) -> None:
    """One event of each topic from each broker reaches exactly whom the oracle names."""
    for broker in world.ids:
        for topic in TOPICS:
            payload = f"{broker} {topic}"
            world.publish(broker, topic, payload=payload)
            world.settle()
            expected = oracle.receivers(ClientPublished(ClientId("p"), topic))
            assert {c for p, c in world.received if p == payload} == expected, payload
    assert all(times == 1 for times in world.received.values())


@settings(max_examples=80)
@given(
    links=overlays(),
    redundancy=st.integers(1, 3),
    script=st.lists(st.tuples(steps, pauses), min_size=5, max_size=25),
    data=st.data(),
)
def test_the_delivered_set_is_the_oracles_once_quiet(
    links: list[Link], redundancy: int, script: list[tuple[RoutingEvent, float]], data: st.DataObject
) -> None:
    world = MeshWorld(links, redundancy=redundancy, delays=delays_for(data, links))
    oracle = Oracle()
    for event, pause in script:
        oracle.observe(event)
        world.feed(home(world, event), event)
        world.run(pause)
    world.settle()
    check_every_event(world, oracle)


@settings(max_examples=40)
@given(links=overlays(), script=st.lists(st.tuples(steps, pauses), min_size=3, max_size=20))
def test_nothing_of_a_group_is_left_after_its_last_subscriber(
    links: list[Link], script: list[tuple[RoutingEvent, float]]
) -> None:
    world = MeshWorld(links)
    for event, pause in script:
        world.feed(home(world, event), event)
        world.run(pause)
    for number in range(8):
        gone = ClientGone(ClientId(f"c{number}"))
        world.feed(home(world, gone), gone)
    world.run(25_000)
    assert all(world.mesh(broker).state_size() == 0 for broker in world.ids)


@settings(max_examples=40)
@given(
    links=overlays(),
    redundancy=st.integers(1, 3),
    script=st.lists(st.tuples(steps, pauses, st.integers(0, 1_000), st.booleans()), min_size=5, max_size=25),
)
def test_links_that_broke_and_were_mended_leave_no_trace(
    links: list[Link], redundancy: int, script: list[tuple[RoutingEvent, float, int, bool]]
) -> None:
    world = MeshWorld(links, redundancy=redundancy)
    oracle = Oracle()
    cut: dict[Link, None] = {}
    for event, pause, number, fault in script:
        link = links[number % len(links)]
        if fault and link in cut:
            world.mend(*link)
            del cut[link]
        elif fault:
            world.cut(*link)
            cut[link] = None
        oracle.observe(event)
        world.feed(home(world, event), event)
        world.run(pause)
    for link in cut:
        world.mend(*link)
    world.run(40_000)
    check_every_event(world, oracle)


@pytest.mark.parametrize("redundancy", [1, 2, 3])
def test_an_event_is_sent_at_most_once_over_each_link_in_each_direction(redundancy: int) -> None:
    links = [(a, b) for a in "01234" for b in "01234" if a < b and (a, b) != ("0", "4")]
    world = MeshWorld(links, redundancy=redundancy)
    for broker in world.ids:
        world.subscribe(broker, f"t{broker}", "a")
        world.subscribe(broker, f"w{broker}", "#")
        world.settle()
    world.sent.clear()
    world.publish("2", "a", payload="x")
    world.settle()
    assert max(Counter((source, target) for _, source, target, _ in world.sent).values()) == 1
    assert len(world.received) == 10
