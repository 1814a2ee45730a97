"""Theorems 1 and 2 of the paper, as properties over random connected overlays."""

from collections import Counter, deque

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.strategies.mesh.mesh_world import Link, MeshWorld

GROUP = "app"
PERIOD_MS = 5_000


@st.composite
def overlays(draw: st.DrawFn) -> list[Link]:
    """A connected graph of two to nine brokers: a random tree and some more links."""
    count = draw(st.integers(2, 9))
    links = {(str(draw(st.integers(0, new - 1))), str(new)) for new in range(1, count)}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    links |= {(str(min(p)), str(max(p))) for p in draw(st.lists(pairs, max_size=2 * count)) if p[0] != p[1]}
    return sorted(links)


def brokers_of(links: list[Link]) -> list[str]:
    return sorted({end for link in links for end in link})


def distances_from(core: str, links: list[Link]) -> dict[str, int]:
    distances, frontier = {core: 0}, deque([core])
    while frontier:
        here = frontier.popleft()
        for link in links:
            if here in link:
                there = link[0] if link[1] == here else link[1]
                if there not in distances:
                    distances[there] = distances[here] + 1
                    frontier.append(there)
    return distances


def delays_for(data: st.DataObject, links: list[Link]) -> dict[Link, float]:
    return {link: data.draw(st.sampled_from([1.0, 7.0, 20.0, 90.0]), label=str(link)) for link in links}


@settings(max_examples=80)
@given(links=overlays(), core=st.integers(0, 100), redundancy=st.integers(1, 3))
def test_theorem_1_a_core_announcement_costs_at_most_twice_the_links(
    links: list[Link], core: int, redundancy: int
) -> None:
    world = MeshWorld(links, redundancy=redundancy)
    broker = world.ids[core % len(world.ids)]
    world.subscribe(broker, "s", GROUP)
    world.settle()
    sent = world.announcements(GROUP)
    assert len(sent) <= 2 * len(links)
    assert max(Counter(frozenset((source, target)) for source, target, _ in sent).values()) <= 2


@settings(max_examples=60)
@given(links=overlays(), core=st.integers(0, 100), redundancy=st.integers(1, 3), data=st.data())
def test_theorem_1_holds_in_every_period_however_long_the_links_take(
    links: list[Link], core: int, redundancy: int, data: st.DataObject
) -> None:
    world = MeshWorld(links, redundancy=redundancy, delays=delays_for(data, links))
    broker = world.ids[core % len(world.ids)]
    world.run(0.5 * PERIOD_MS)
    world.subscribe(broker, "s", GROUP)
    world.run(3 * PERIOD_MS)
    by_sequence = Counter(item.sequence for _, _, item in world.announcements(GROUP))
    assert len(by_sequence) == 4
    assert set(by_sequence.values()) == {2 * len(links) - (len(world.ids) - 1)}


@settings(max_examples=60)
@given(links=overlays(), core=st.integers(0, 100), redundancy=st.integers(1, 3), data=st.data())
def test_every_broker_learns_the_shortest_distance_and_has_parents_one_hop_nearer(
    links: list[Link], core: int, redundancy: int, data: st.DataObject
) -> None:
    world = MeshWorld(links, redundancy=redundancy, delays=delays_for(data, links))
    start = world.ids[core % len(world.ids)]
    world.subscribe(start, "s", GROUP)
    world.run((len(world.ids) + 0.5) * PERIOD_MS)
    distances = distances_from(start, links)
    for broker in world.ids:
        group = world.group(broker, GROUP)
        nearer = [n for n in world.mesh(broker).neighbours if distances[n] == distances[broker] - 1]
        assert group.core == start
        assert group.distance == distances[broker]
        assert set(group.parents) <= set(nearer)
        assert len(group.parents) == min(redundancy, len(nearer))


@settings(max_examples=80)
@given(links=overlays(), redundancy=st.integers(1, 3), data=st.data())
def test_theorem_2_the_mesh_converges_and_a_member_tells_each_parent_once_per_sequence_number(
    links: list[Link], redundancy: int, data: st.DataObject
) -> None:
    world = MeshWorld(links, redundancy=redundancy, delays=delays_for(data, links))
    subscribed = data.draw(st.lists(st.sampled_from(world.ids), min_size=1, unique=True), label="subscribed")
    for broker in subscribed:
        world.subscribe(broker, "s", GROUP)
        world.settle()
    expected, frontier = set(subscribed), list(subscribed)
    while frontier:
        for parent in world.group(frontier.pop(), GROUP).parents:
            if parent not in expected:
                expected.add(parent)
                frontier.append(parent)
    assert world.members(GROUP) == expected | {subscribed[0]}
    told = Counter((source, target, item.sequence) for source, target, item in world.memberships(GROUP))
    assert all(times == 1 for times in told.values())
    assert all(item.member for _, _, item in world.memberships(GROUP))


@settings(max_examples=40)
@given(links=overlays(), data=st.data())
def test_of_many_brokers_that_stand_at_once_the_smallest_id_is_core_everywhere(
    links: list[Link], data: st.DataObject
) -> None:
    world = MeshWorld(links, delays=delays_for(data, links))
    standing = data.draw(st.lists(st.sampled_from(world.ids), min_size=1, unique=True), label="standing")
    for broker in standing:
        world.subscribe(broker, "s", GROUP)
    world.settle()
    assert world.cores(GROUP) == {min(standing)}


@settings(max_examples=40)
@given(links=overlays(), redundancy=st.integers(1, 3), data=st.data())
def test_the_management_mesh_spans_all_brokers_around_the_smallest_id(
    links: list[Link], redundancy: int, data: st.DataObject
) -> None:
    world = MeshWorld(links, redundancy=redundancy, delays=delays_for(data, links))
    world.run(2.5 * PERIOD_MS)
    assert world.cores("#management") == {"0"}
    assert world.members("#management") == set(brokers_of(links))
    world.run(len(world.ids) * PERIOD_MS)
    settled = world.now
    world.run(2 * PERIOD_MS)
    later = world.memberships("#management", since_ms=settled)
    assert all(item.member for _, _, item in later)
    told = Counter((source, target, item.sequence) for source, target, item in later)
    assert set(told.values()) == {1}


def test_no_event_is_missed_while_a_broker_turns_to_a_shorter_way() -> None:
    """Broker 4 first hears over 1 and 3, which is fast; that 2 is nearer to the core it is told a period later."""
    slow: list[Link] = [("0", "2"), ("2", "4")]
    links: list[Link] = [("0", "1"), ("1", "2"), ("1", "3"), ("3", "4"), *slow]
    world = MeshWorld(links, redundancy=1, delay_ms=1.0, delays=dict.fromkeys(slow, 90.0))
    for broker in "04":
        world.run(0.2 * PERIOD_MS)
        world.subscribe(broker, f"s{broker}", GROUP)
    world.run(0.2 * PERIOD_MS)
    assert list(world.group("4", GROUP).parents) == ["3"]
    events = 0
    while world.now < 3 * PERIOD_MS:
        world.publish("0", GROUP, payload=f"{events}")
        events += 1
        world.run(20)
    world.run(PERIOD_MS)
    assert list(world.group("4", GROUP).parents) == ["2"]
    assert world.members(GROUP) == {"0", "2", "4"}
    assert world.received == {(f"{number}", f"s{broker}"): 1 for number in range(events) for broker in "04"}
