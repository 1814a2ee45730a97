"""Figures 1 to 4 of the paper, on its six brokers with redundancy two.

Management has core 0, application 1 core 0 and application 2 core 1. A publication is one event here, a topic of
application 2 is `app2/...`.
"""

from pathlib import Path

import pytest
from tests.routing.strategies.mesh.mesh_world import SIX_LINKS, MeshWorld

PAGE = Path(__file__).parents[4] / "docs" / "topics" / "strategies" / "mesh.md"

FIGURE_3 = """\
       0 1: ClientSubscribed client=s1 topic_filter=app2/#
           -> to 0: CoreAnnouncements items=[app2 core=1 sequence=1 distance=0 member]
           -> to 3: CoreAnnouncements items=[app2 core=1 sequence=1 distance=0 member]
           -> to 4: CoreAnnouncements items=[app2 core=1 sequence=1 distance=0 member]
      10 0: from 1: CoreAnnouncements items=[app2 core=1 sequence=1 distance=0 member]
           -> to 2: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      10 3: from 1: CoreAnnouncements items=[app2 core=1 sequence=1 distance=0 member]
           -> to 2: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
           -> to 4: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
           -> to 5: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      10 4: from 1: CoreAnnouncements items=[app2 core=1 sequence=1 distance=0 member]
           -> to 3: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
           -> to 5: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      20 2: from 0: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
           -> to 3: CoreAnnouncements items=[app2 core=1 sequence=1 distance=2 parents=0]
      20 2: from 3: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      20 4: from 3: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      20 5: from 3: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
           -> to 4: CoreAnnouncements items=[app2 core=1 sequence=1 distance=2 parents=3]
      20 3: from 4: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      20 5: from 4: CoreAnnouncements items=[app2 core=1 sequence=1 distance=1 parents=1]
      30 3: from 2: CoreAnnouncements items=[app2 core=1 sequence=1 distance=2 parents=0]
      30 4: from 5: CoreAnnouncements items=[app2 core=1 sequence=1 distance=2 parents=3]
      30 5: ClientSubscribed client=s5 topic_filter=app2/#
           -> to 3: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
           -> to 4: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
      40 3: from 5: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
           -> to 1: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
      40 4: from 5: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
           -> to 1: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
      50 1: from 3: MembershipAnnouncements items=[joins app2 core=1 sequence=1]
      50 1: from 4: MembershipAnnouncements items=[joins app2 core=1 sequence=1]"""

FIGURE_4_FROM_A_MEMBER = """\
      50 4: ClientPublished client=p topic=app2/x
           -> to 1: ForwardEvent event=4:0:1(p app2/x) hops=1
           -> to 5: ForwardEvent event=4:0:1(p app2/x) hops=1
      60 1: from 4: ForwardEvent event=4:0:1(p app2/x) hops=1
           -> deliver 4:0:1 to s1
           -> to 3: ForwardEvent event=4:0:1(p app2/x) hops=2
      60 5: from 4: ForwardEvent event=4:0:1(p app2/x) hops=1
           -> deliver 4:0:1 to s5
           -> to 3: ForwardEvent event=4:0:1(p app2/x) hops=2
      70 3: from 1: ForwardEvent event=4:0:1(p app2/x) hops=2
           -> to 5: ForwardEvent event=4:0:1(p app2/x) hops=3
      70 3: from 5: ForwardEvent event=4:0:1(p app2/x) hops=2
           -> drop 4:0:1: duplicate
      80 5: from 3: ForwardEvent event=4:0:1(p app2/x) hops=3
           -> drop 4:0:1: duplicate"""

FIGURE_4_FROM_OUTSIDE = """\
      50 0: ClientPublished client=p topic=app2/x
           -> to 1: ForwardEvent event=0:0:1(p app2/x) hops=1
      60 1: from 0: ForwardEvent event=0:0:1(p app2/x) hops=1
           -> deliver 0:0:1 to s1
           -> to 3: ForwardEvent event=0:0:1(p app2/x) hops=2
           -> to 4: ForwardEvent event=0:0:1(p app2/x) hops=2
      70 3: from 1: ForwardEvent event=0:0:1(p app2/x) hops=2
           -> to 5: ForwardEvent event=0:0:1(p app2/x) hops=3
      70 4: from 1: ForwardEvent event=0:0:1(p app2/x) hops=2
           -> to 5: ForwardEvent event=0:0:1(p app2/x) hops=3
      80 5: from 3: ForwardEvent event=0:0:1(p app2/x) hops=3
           -> deliver 0:0:1 to s5
           -> to 4: ForwardEvent event=0:0:1(p app2/x) hops=4
      80 5: from 4: ForwardEvent event=0:0:1(p app2/x) hops=3
           -> drop 0:0:1: duplicate
      90 4: from 5: ForwardEvent event=0:0:1(p app2/x) hops=4
           -> drop 0:0:1: duplicate"""


def figure_3() -> MeshWorld:
    """Broker 1 gets the first subscriber of application 2, broker 5 the second. Management stays out of sight."""
    world = MeshWorld(SIX_LINKS)
    world.subscribe("1", "s1", "app2/#")
    world.settle()
    world.subscribe("5", "s5", "app2/#")
    world.settle()
    return world


def test_figure_1_the_management_mesh_has_every_link_but_the_one_between_3_and_4() -> None:
    world = MeshWorld(SIX_LINKS)
    world.run(100)
    assert world.cores("#management") == {"0"}
    assert world.members("#management") == set("012345")
    assert world.edges("#management") == set(SIX_LINKS) - {("3", "4")}


def test_figure_1_every_broker_has_up_to_two_neighbours_leading_to_the_core() -> None:
    world = MeshWorld(SIX_LINKS)
    world.run(100)
    parents = {broker: "".join(world.group(broker, "#management").parents) for broker in world.ids}
    assert parents == {"0": "", "1": "0", "2": "0", "3": "12", "4": "1", "5": "34"}


def test_figure_2_each_application_has_its_own_core_and_mesh() -> None:
    world = MeshWorld(SIX_LINKS)
    world.run(100)
    world.subscribe("0", "s0", "app1/#")
    world.subscribe("1", "s1", "app2/#")
    world.run(100)
    world.subscribe("3", "s3", "app1/#")
    world.subscribe("5", "s5", "app2/#")
    world.run(100)
    assert world.cores("app1") == {"0"}
    assert world.edges("app1") == {("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")}
    assert world.cores("app2") == {"1"}
    assert world.edges("app2") == {("1", "3"), ("1", "4"), ("3", "5"), ("4", "5")}


def test_figure_2_publications_of_each_application_reach_its_subscribers_only() -> None:
    world = MeshWorld(SIX_LINKS)
    for broker, app in (("0", "app1"), ("1", "app2"), ("3", "app1"), ("5", "app2")):
        world.subscribe(broker, f"{app} at {broker}", f"{app}/#")
        world.run(100)
    for broker in world.ids:
        for app in ("app1", "app2"):
            world.publish(broker, f"{app}/x", payload=f"{app} from {broker}")
    world.run(100)
    expected = {
        (f"{app} from {broker}", f"{app} at {home}")
        for broker in world.ids
        for app, homes in (("app1", "03"), ("app2", "15"))
        for home in homes
    }
    assert set(world.received) == expected
    assert set(world.received.values()) == {1}


def test_figure_3_the_mesh_of_application_2_is_built() -> None:
    assert "\n".join(figure_3().lines) == FIGURE_3


def test_figure_3_each_further_announcement_makes_the_members_tell_their_parents_again() -> None:
    world = figure_3()
    now = world.now
    world.run(100)
    told = {(source, target) for source, target, _ in world.memberships("app2", since_ms=now)}
    assert told == {("5", "3"), ("5", "4"), ("3", "1"), ("4", "1")}


def test_figure_4a_and_4b_a_publication_from_a_member_spreads_along_the_mesh() -> None:
    world = figure_3()
    world.lines.clear()
    world.publish("4", "app2/x")
    world.settle()
    assert "\n".join(world.lines) == FIGURE_4_FROM_A_MEMBER


def test_figure_4c_and_4d_a_publication_from_outside_goes_towards_the_core() -> None:
    world = figure_3()
    world.lines.clear()
    world.publish("0", "app2/x")
    world.settle()
    assert "\n".join(world.lines) == FIGURE_4_FROM_OUTSIDE


def test_a_publication_from_outside_need_not_go_all_the_way_to_the_core() -> None:
    """Broker 6 hangs on broker 5, a member two hops from the core."""
    world = MeshWorld([*SIX_LINKS, ("5", "6")])
    world.subscribe("1", "s1", "app2/#")
    world.settle()
    world.subscribe("5", "s5", "app2/#")
    world.settle()
    world.lines.clear()
    world.publish("6", "app2/x")
    world.settle()
    assert world.lines[:2] == [
        "      50 6: ClientPublished client=p topic=app2/x",
        "           -> to 5: ForwardEvent event=6:0:1(p app2/x) hops=1",
    ]
    assert "           -> to 3: ForwardEvent event=6:0:1(p app2/x) hops=2" in world.lines
    assert len(world.received) == 2


@pytest.mark.parametrize("transcript", [FIGURE_3, FIGURE_4_FROM_A_MEMBER, FIGURE_4_FROM_OUTSIDE])
def test_the_page_about_the_strategy_shows_these_transcripts(transcript: str) -> None:
    assert transcript in PAGE.read_text(encoding="utf-8")
