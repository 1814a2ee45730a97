"""The rendezvous protocol: hashed places, nearest tried, longer paths pruned, soft state that heals."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.cells import Cells, cells_of
from geomq.reproduction.rendezvous.network import Network, random_network
from geomq.reproduction.rendezvous.rendezvous import Options, Rendezvous, Sent, by_distance, places_of
from geomq.reproduction.rendezvous.routing import route


def network_of(nodes: int = 300, seed: int = 1) -> Network:
    return random_network(nodes, 45, np.random.default_rng(seed))


def connected(network: Network) -> tuple[Cells, list[int]]:
    cells = cells_of(network)
    return cells, np.flatnonzero(cells.largest_component()[cells.at(network.points)]).tolist()


def kinds(sent: list[Sent]) -> Counter[str]:
    return Counter(each.kind for each in sent)


def test_places_are_those_of_the_name_and_more_of_them_change_none() -> None:
    assert np.array_equal(places_of("cars", 16)[:8], places_of("cars", 8))
    assert not np.array_equal(places_of("cars", 8), places_of("cats", 8))


def test_places_are_uniform_in_the_square() -> None:
    places = np.concatenate([places_of(f"topic {number}", 16) for number in range(500)])
    assert places.min() >= 0
    assert places.max() < 1
    filled = np.bincount((places * 4).astype(np.int64) @ [1, 4], minlength=16)
    assert abs(filled - 500).max() < 5 * np.sqrt(500)


def test_the_physically_closest_places_come_first() -> None:
    places = np.array([[0.9, 0.9], [0.1, 0.2], [0.5, 0.5]])
    assert by_distance(places, np.array([0.0, 0.0])).tolist() == [1, 2, 0]
    assert by_distance(places, np.array([[0.0, 0.0], [1.0, 1.0]])).tolist() == [[1, 2, 0], [0, 2, 1]]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 16))
def test_a_subscription_wastes_three_messages_for_each_rendezvous_it_does_not_keep(seed: int, count: int) -> None:
    network = network_of(seed=seed % 5)
    cells, members = connected(network)
    publisher, subscriber = np.random.default_rng(seed).choice(members, 2, replace=False).tolist()
    protocol = Rendezvous(cells, network.points, Options(rendezvous=count, nearest=count))
    distinct = len(protocol.advertise(publisher, f"topic {seed}", now=0))
    sent = protocol.subscribe(subscriber, f"topic {seed}", now=0) + protocol.publish(publisher, f"topic {seed}").sent
    seen = kinds(sent)
    assert seen["subscription"] == seen["notification to subscriber"] == distinct
    assert seen["prune"] == distinct - 1
    wasted = seen["subscription"] + seen["notification to subscriber"] + seen["prune"] - 2
    assert wasted == 3 * (distinct - 1)
    assert seen["forwarded prune"] == distinct - 1
    assert kinds(protocol.publish(publisher, f"topic {seed}").sent) == {
        "notification to rendezvous": 1,
        "notification to subscriber": 1,
    }


def test_the_path_that_stays_is_the_shortest_of_those_tried() -> None:
    network = network_of()
    cells, members = connected(network)
    at = cells.at(network.points)
    for seed in range(20):
        publisher, subscriber = np.random.default_rng(seed).choice(members, 2, replace=False).tolist()
        protocol = Rendezvous(cells, network.points, Options(rendezvous=8, nearest=3))
        protocol.advertise(publisher, "cars", now=0)
        protocol.subscribe(subscriber, "cars", now=0)
        places = places_of("cars", 8)
        hops = []
        for goal in cells.at(places[by_distance(places, network.points[subscriber])[:3]]).tolist():
            there = route(cells, int(at[publisher]), goal)
            hops.append(there.hops + route(cells, there.end, int(at[subscriber])).hops)
        for _ in range(2):
            assert protocol.publish(publisher, "cars").hops == {subscriber: min(hops)}


def test_advertisements_are_never_pruned_and_a_new_subscriber_finds_them() -> None:
    network = network_of()
    cells, members = connected(network)
    publisher, first, second = members[0], members[50], members[100]
    protocol = Rendezvous(cells, network.points, Options(rendezvous=4, nearest=4))
    protocol.advertise(publisher, "cars", now=0)
    protocol.subscribe(first, "cars", now=0)
    protocol.publish(publisher, "cars")
    asked_again = kinds(protocol.subscribe(second, "cars", now=1))["forwarded subscription"]
    assert asked_again == len(set(protocol._tried(second, "cars", 4))) - 1
    assert protocol.publish(publisher, "cars").hops.keys() == {first, second}


def test_nobody_is_notified_where_nobody_subscribed() -> None:
    network = network_of()
    cells, members = connected(network)
    protocol = Rendezvous(cells, network.points, Options())
    protocol.advertise(members[0], "cars", now=0)
    protocol.subscribe(members[1], "cats", now=0)
    assert protocol.publish(members[0], "cars") == ([], {})


def test_who_falls_silent_is_forgotten_and_its_rendezvous_are_released() -> None:
    network = network_of()
    cells, members = connected(network)
    publisher, subscriber = members[0], members[70]
    protocol = Rendezvous(cells, network.points, Options(expire_ms=100))
    protocol.advertise(publisher, "cars", now=0)
    protocol.subscribe(subscriber, "cars", now=0)
    protocol.leave(subscriber)
    protocol.refresh(now=100)
    assert protocol.publish(publisher, "cars").hops.keys() == {subscriber}
    assert kinds(protocol.refresh(now=101))["forwarded prune"] >= 1
    assert protocol.publish(publisher, "cars") == ([], {})
    protocol.leave(publisher)
    protocol.refresh(now=500)
    assert not protocol._meetings
    with pytest.raises(UsageError, match="has not advertised"):
        protocol.publish(publisher, "cars")


def test_a_moving_subscriber_tries_what_is_near_its_new_place() -> None:
    network = network_of()
    cells, members = connected(network)
    publisher, subscriber = members[0], members[70]
    protocol = Rendezvous(cells, network.points, Options(rendezvous=16, nearest=1))
    protocol.advertise(publisher, "cars", now=0)
    for now, corner in enumerate(([0.02, 0.02], [0.98, 0.98])):
        points = network.points.copy()
        points[subscriber] = corner
        cells = cells_of(Network(points, network.radius))
        protocol.rewire(cells, points)
        sent = protocol.subscribe(subscriber, "cars", now=now)
        places = places_of("cars", 16)
        closest = places[by_distance(places, points[subscriber])[0]]
        home = route(cells, int(cells.at(points[subscriber])), int(cells.at(closest))).end
        assert sent[0].rendezvous == home


Step = tuple[str, int]


@settings(max_examples=150)
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.sampled_from(["move", "hole", "publish", "subscribe", "leave"]), st.integers(0, 29))),
)
@example(0, [("move", 0), ("subscribe", 0), ("move", 0)])
@example(795, [("subscribe", 1), ("move", 1), ("move", 0), ("move", 0)])
def test_after_a_refresh_every_subscriber_in_reach_is_notified_whatever_happened(seed: int, steps: list[Step]) -> None:
    dice = np.random.default_rng(seed)
    network = random_network(30, 10, dice)
    protocol = Rendezvous(cells_of(network), network.points, Options(rendezvous=4, nearest=2, expire_ms=1500))
    points, silent, now = network.points.copy(), set(range(2, 30)), 0.0
    protocol.advertise(0, "cars", now=now)
    protocol.advertise(1, "cars", now=now)
    for action, node in steps:
        now += 700
        if action == "publish":
            protocol.publish(node % 2, "cars")
        elif action == "subscribe":
            silent.discard(node)
            protocol.subscribe(node, "cars", now=now)
        elif action == "leave" and node > 1:
            silent.add(node)
            protocol.leave(node)
        else:
            points = moved(points, action, node, dice)
            protocol.rewire(cells_of(Network(points, network.radius)), points)
        protocol.refresh(now=now)
        assert_all_reached(protocol, cells_of(Network(points, network.radius)), points)


def moved(points: NDArray[np.float64], action: str, node: int, dice: np.random.Generator) -> NDArray[np.float64]:
    points = points.copy()
    if action == "move":
        points[node] = dice.random(2)
    else:
        around = np.hypot(*(points - points[node]).T) < 0.3
        points[around] = dice.random((around.sum(), 2))
    return points


def assert_all_reached(protocol: Rendezvous, cells: Cells, points: NDArray[np.float64]) -> None:
    at = cells.at(points)
    subscribed = {node for node, _ in protocol._subscribed}
    for publisher in (0, 1):
        reachable = {node for node in subscribed if cells.component[at[node]] == cells.component[at[publisher]]}
        assert protocol.publish(publisher, "cars").hops.keys() >= reachable
        again = protocol.publish(publisher, "cars")
        assert again.hops.keys() >= reachable
        copies = Counter(each.node for each in again.sent if each.kind == "notification to subscriber")
        assert all(copies[node] == 1 for node in reachable)


@pytest.mark.parametrize(
    "bad",
    [{"rendezvous": 0, "nearest": 0}, {"rendezvous": 2, "nearest": 3}, {"rendezvous": 65}, {"expire_ms": float("nan")}],
)
def test_impossible_options_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Options(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_topic_has_a_bounded_number_of_places(count: int) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        places_of("cars", count)
