"""What strategies would do in a set-up, asked of the strategies themselves."""

from collections import Counter

from geomq.dashboard.layers import Layer, Setup, layers_of
from geomq.workload.world import World

TOPICS = [f"topic-{number}" for number in range(100)]


def layers(world: World) -> dict[str, Layer]:
    weights = {place.name: float(place.population) for place in world.places}
    return {layer.name: layer for layer in layers_of(Setup(world.federation, TOPICS, weights))}


def test_the_published_world_has_every_layer() -> None:
    found = layers(World.published())
    assert set(found) == {
        "disgb_events",
        "disgb_subscriptions",
        "dht",
        "grid_quorum",
        "georendezvous",
        "broadcast_groups",
        "mesh",
    }
    names = set(World.published().federation.ids)
    for layer in found.values():
        assert set(layer.brokers) <= names
        assert {end for line in layer.lines for end in line[:2]} <= names
        assert layer.text.endswith(".")


def test_every_topic_has_one_owner() -> None:
    dht = layers(World.published())["dht"]
    assert sum(int(mark.label.split()[1]) for mark in dht.brokers.values()) == len(TOPICS)
    (owner,) = [name for name, mark in dht.brokers.items() if mark.group == "chosen"]
    assert all(line[1] == owner for line in dht.lines)
    assert len(dht.lines) == 24


def test_the_grid_has_five_rows_and_the_quorum_of_one_broker() -> None:
    grid = layers(World.published())["grid_quorum"]
    assert {mark.group for mark in grid.brokers.values()} == {f"row {row}" for row in range(1, 6)}
    kinds = [line[2] for line in grid.lines]
    assert (kinds.count("row"), kinds.count("column")) == (4, 4)


def test_members_follow_their_leader() -> None:
    groups = layers(World.published())["broadcast_groups"]
    leaders = {mark.group for mark in groups.brokers.values()}
    assert all(groups.brokers[leader].label.startswith("leads") for leader in leaders)
    assert len(groups.lines) == 25 - len(leaders)
    assert all(groups.brokers[line[0]].group == line[1] for line in groups.lines)


def test_the_mesh_has_one_core_and_reaches_every_subscriber() -> None:
    world = World.published()
    mesh = layers(world)["mesh"]
    assert [mark.group for mark in mesh.brokers.values()].count("core") == 1
    assert set(world.federation.ids[::3]) <= set(mesh.brokers)
    overlay = {frozenset(line[:2]) for line in mesh.lines if line[2] == "overlay"}
    assert {frozenset(line[:2]) for line in mesh.lines if line[2] == "mesh"} <= overlay


def test_brokers_that_do_not_fill_the_square_leave_a_shorter_last_row() -> None:
    marks = layers(World.of_cities(7, seed=1))["grid_quorum"].brokers
    assert Counter(mark.group for mark in marks.values()) == {"row 1": 3, "row 2": 3, "row 3": 1}
