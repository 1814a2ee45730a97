"""The life of one group: election, failure of cores and links, late joiners, fading."""

import pytest
from tests.routing.strategies.mesh.mesh_world import SIX_LINKS, MeshWorld

from geomq.routing.core.messages import ForwardEvent
from geomq.routing.strategies.mesh.messages import CoreAnnouncements, RoutesLost

RING = [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4"), ("4", "5"), ("0", "5")]
CHAIN = [("0", "1"), ("1", "2"), ("2", "3")]
PERIOD_MS = 5_000
LIFETIME_MS = 15_000


def events_sent(world: MeshWorld) -> list[tuple[str, str]]:
    return [(source, target) for _, source, target, message in world.sent if isinstance(message, ForwardEvent)]


def received_by(world: MeshWorld, payload: str) -> set[str]:
    return {client for name, client in world.received if name == payload}


def test_the_broker_of_the_first_subscriber_announces_itself() -> None:
    world = MeshWorld(RING)
    world.subscribe("3", "s", "a")
    world.settle()
    assert world.cores("a") == {"3"}
    assert world.members("a") == {"3"}


def test_a_later_subscriber_joins_the_core_that_is_there_even_if_its_own_id_is_smaller() -> None:
    world = MeshWorld(RING)
    world.subscribe("3", "s", "a")
    world.settle()
    world.subscribe("1", "t", "a")
    world.settle()
    assert world.cores("a") == {"3"}
    assert world.members("a") == {"1", "2", "3"}


def test_of_two_cores_the_smallest_id_wins_and_the_other_stops() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("1", "s", "a")
    world.subscribe("3", "t", "a")
    world.settle()
    assert world.cores("a") == {"1"}
    world.sent.clear()
    world.run(2 * PERIOD_MS)
    assert {item.core for _, _, item in world.announcements("a")} == {"1"}


def test_who_hears_of_a_worse_core_answers_with_the_better() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.settle()
    world.cut("2", "3")
    world.subscribe("3", "t", "a")
    world.settle()
    world.run(LIFETIME_MS + PERIOD_MS)
    assert world.cores("a") == {"0", "3"}
    world.mend("2", "3")
    world.settle()
    assert world.cores("a") == {"0"}
    world.publish("3", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s", "t"}


def test_a_subscriber_that_comes_between_announcements_does_not_wait_for_the_next() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.settle()
    world.subscribe("3", "t", "a")
    world.settle()
    world.publish("0", "a", payload="x")
    world.settle()
    assert world.now < PERIOD_MS
    assert received_by(world, "x") == {"s", "t"}


def test_when_the_core_crashes_the_members_elect_the_smallest_of_them() -> None:
    world = MeshWorld(SIX_LINKS)
    for broker in "135":
        world.subscribe(broker, f"s{broker}", "a")
        world.settle()
    assert world.cores("a") == {"1"}
    world.crash("1")
    world.run(PERIOD_MS + 100)
    assert world.cores("a") == {"3"}
    world.publish("0", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s3", "s5"}


def test_a_core_that_falls_silent_without_a_broken_link_is_forgotten_too() -> None:
    world = MeshWorld(CHAIN)
    for broker in "013":
        world.subscribe(broker, f"s{broker}", "a")
        world.settle()
    del world.nodes[world.ids[0]]
    world.run(LIFETIME_MS + 2 * PERIOD_MS)
    assert world.cores("a") == {"1"}
    assert world.cores("#management") == {"1"}
    world.publish("2", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s1", "s3"}


def test_a_restarted_core_is_not_taken_for_its_own_past() -> None:
    world = MeshWorld(RING)
    world.subscribe("0", "s", "a")
    world.run(4 * PERIOD_MS)
    assert world.group("3", "a").sequence > 1
    world.crash("0")
    world.restart("0")
    world.subscribe("0", "s", "a")
    world.run(PERIOD_MS + 200)
    world.publish("3", "a", payload="x")
    world.settle()
    assert world.cores("a") == {"0"}
    assert received_by(world, "x") == {"s"}


def test_with_two_parents_a_broken_link_loses_no_event() -> None:
    world = MeshWorld(SIX_LINKS)
    world.subscribe("1", "s1", "a")
    world.settle()
    world.subscribe("5", "s5", "a")
    world.settle()
    world.cut("3", "5")
    world.publish("1", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s1", "s5"}


def test_with_one_parent_a_known_equal_neighbour_takes_its_place_at_once() -> None:
    world = MeshWorld(SIX_LINKS, redundancy=1)
    world.subscribe("1", "s1", "a")
    world.settle()
    world.subscribe("5", "s5", "a")
    world.settle()
    assert list(world.group("5", "a").parents) == ["3"]
    world.sent.clear()
    world.cut("3", "5")
    assert list(world.group("5", "a").parents) == ["4"]
    world.settle()
    assert not any(isinstance(message, RoutesLost) for _, _, _, message in world.sent)
    world.publish("1", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s1", "s5"}


def test_who_loses_its_last_way_asks_and_the_core_announces_anew_at_once() -> None:
    world = MeshWorld(RING)
    world.subscribe("0", "s0", "a")
    world.settle()
    world.subscribe("2", "s2", "a")
    world.settle()
    world.cut("0", "1")
    world.settle()
    assert world.now < PERIOD_MS
    assert [world.group(broker, "a").distance for broker in "012345"] == [0, 5, 4, 3, 2, 1]
    world.publish("0", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s0", "s2"}


def test_an_event_for_a_neighbour_whose_link_is_briefly_broken_waits_for_it() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.settle()
    world.subscribe("3", "t", "a")
    world.settle()
    world.cut("1", "2")
    world.publish("0", "a", payload="down")
    world.publish("3", "a", payload="up")
    world.settle()
    world.mend("1", "2")
    world.settle()
    assert received_by(world, "down") == received_by(world, "up") == {"s", "t"}


def test_each_side_of_a_partition_has_a_core_and_after_it_one_is_left() -> None:
    world = MeshWorld(CHAIN)
    for broker in "0123":
        world.subscribe(broker, f"s{broker}", "a")
        world.settle()
    world.cut("1", "2")
    world.run(PERIOD_MS + 100)
    assert [world.group(broker, "a").core for broker in "0123"] == ["0", "0", "2", "2"]
    world.mend("1", "2")
    world.settle()
    assert world.cores("a") == {"0"}
    world.publish("3", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s0", "s1", "s2", "s3"}
    assert set(world.received.values()) == {1}


def test_a_broker_that_joins_late_learns_of_all_groups_at_once() -> None:
    world = MeshWorld(SIX_LINKS)
    world.crash("5")
    world.subscribe("1", "s1", "a")
    world.subscribe("2", "s2", "b")
    world.run(PERIOD_MS / 2)
    world.restart("5")
    world.settle()
    assert world.group("5", "a").core == "1"
    assert world.group("5", "b").core == "2"
    world.publish("5", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"s1"}


def test_who_has_no_subscriber_left_leaves_the_mesh_and_so_do_those_that_only_connected_it() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.settle()
    world.subscribe("3", "t", "a")
    world.settle()
    assert world.members("a") == {"0", "1", "2", "3"}
    world.unsubscribe("3", "t", "a")
    world.settle()
    assert world.members("a") == {"0"}


def test_who_connects_others_stays_when_its_own_subscriber_leaves() -> None:
    world = MeshWorld(CHAIN)
    for broker in "013":
        world.subscribe(broker, f"s{broker}", "a")
        world.settle()
    world.unsubscribe("1", "s1", "a")
    world.settle()
    assert world.members("a") == {"0", "1", "2", "3"}


def test_a_core_whose_own_subscriber_left_serves_its_members_on() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.settle()
    world.subscribe("3", "t", "a")
    world.settle()
    world.unsubscribe("0", "s", "a")
    world.run(3 * LIFETIME_MS)
    assert world.cores("a") == {"0"}
    world.publish("1", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"t"}


def test_a_core_without_members_stops_and_its_group_fades_everywhere() -> None:
    world = MeshWorld(SIX_LINKS)
    world.subscribe("1", "s", "a")
    world.run(PERIOD_MS / 2)
    world.unsubscribe("1", "s", "a")
    world.sent.clear()
    world.run(LIFETIME_MS + PERIOD_MS)
    assert world.announcements("a") == []
    assert all("a" not in world.mesh(broker).groups for broker in world.ids)


def test_members_that_do_not_renew_are_forgotten() -> None:
    """Broker 3 falls silent without a broken link; broker 2, which only connected it, leaves too."""
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.settle()
    world.subscribe("3", "t", "a")
    world.settle()
    del world.nodes[world.ids[3]]
    world.run(LIFETIME_MS + 2 * PERIOD_MS)
    assert world.members("a") == {"0"}


def test_a_core_that_stopped_resumes_when_a_membership_announcement_still_reaches_it() -> None:
    world = MeshWorld(CHAIN)
    world.subscribe("0", "s", "a")
    world.run(PERIOD_MS / 2)
    world.unsubscribe("0", "s", "a")
    world.run(PERIOD_MS)
    world.subscribe("3", "t", "a")
    world.settle()
    assert world.cores("a") == {"0"}
    world.publish("0", "a", payload="x")
    world.settle()
    assert received_by(world, "x") == {"t"}


def test_an_old_announcement_told_to_a_neighbour_does_not_outlive_its_core() -> None:
    """Broker 3 hears of the group only when its core has long stopped; the age of the news comes with it."""
    world = MeshWorld(CHAIN)
    world.crash("3")
    world.subscribe("0", "s", "a")
    world.settle()
    world.unsubscribe("0", "s", "a")
    world.run(10_000)
    world.restart("3")
    world.settle()
    assert world.group("3", "a").core == "0"
    world.run(PERIOD_MS + PERIOD_MS)
    assert world.cores("a") == {None}


@pytest.mark.parametrize("crashed", ["0", "1", "4"])
def test_the_management_mesh_survives_any_crash_and_return(crashed: str) -> None:
    world = MeshWorld(SIX_LINKS)
    world.run(PERIOD_MS)
    world.crash(crashed)
    world.run(2 * PERIOD_MS)
    assert world.cores("#management") == {min(set("012345") - {crashed})}
    world.restart(crashed)
    world.run(2 * PERIOD_MS)
    assert world.cores("#management") == {"0"}
    assert world.members("#management") == set("012345")


def test_outsiders_that_are_no_way_to_the_core_do_not_pass_an_event_of_another_mesh_on() -> None:
    """Brokers 1, 2 and 3 are linked with both cores: 1 of `a`, 0 of the wildcard group. No copy goes astray."""
    links = [(a, b) for a in "0123" for b in "0123" if a < b]
    world = MeshWorld(links)
    world.subscribe("0", "w", "#")
    world.subscribe("1", "s1", "a")
    world.settle()
    for broker in "23":
        world.subscribe(broker, f"s{broker}", "a")
        world.settle()
    world.sent.clear()
    world.publish("1", "a", payload="x")
    world.settle()
    assert sorted(events_sent(world)) == [("1", "0"), ("1", "2"), ("1", "3")]
    assert received_by(world, "x") == {"w", "s1", "s2", "s3"}


def test_announcements_for_one_neighbour_that_fall_due_together_travel_together() -> None:
    world = MeshWorld(CHAIN)
    for name in ("a", "b", "c"):
        world.subscribe("0", "s", name)
    world.run(100)
    world.sent.clear()
    world.run(PERIOD_MS)
    due = [m for _, source, _, m in world.sent if source == "0" and isinstance(m, CoreAnnouncements)]
    assert [[item.group for item in message.items] for message in due] == [["#management", "a", "b", "c"]]
