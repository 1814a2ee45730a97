"""The world of the geo loads is what the brokers are told it is."""

from bench.places import (
    best_precision,
    cell_of,
    cell_size_deg,
    cells_over,
    fence_text,
    location_text,
    make_world,
)

from geomq.geo import make_location, parse_fence, parse_location


def test_receivers_are_those_inside_the_fence_and_the_mover_is_never_among_them() -> None:
    world = make_world(300, 100)
    places = list(world.places)
    for step in world.steps:
        fence = parse_fence(fence_text(step.fence))
        assert set(step.receivers) == {i for i, place in enumerate(places) if fence.contains(place)}
        assert step.receivers
        assert places[step.mover] == step.before
        places[step.mover] = parse_location(location_text(step.place))
        assert not fence.contains(places[step.mover])


def test_about_ten_subscribers_are_inside() -> None:
    world = make_world(1_000, 200)
    mean = sum(len(step.receivers) for step in world.steps) / len(world.steps)
    assert 7 < mean < 13


def test_texts_have_one_length() -> None:
    world = make_world(1_000, 200)
    assert len({len(location_text(place)) for place in world.places}) == 1
    assert len({len(fence_text(step.fence)) for step in world.steps}) == 1


def test_geohashes_are_the_usual_ones() -> None:
    assert cell_of(make_location(57.64911, 10.40744), 5) == "u4pru"
    assert cell_of(make_location(48.8566, 2.3522), 6) == "u09tvw"
    assert cell_size_deg(5) == (180 / 4096, 360 / 8192)


def test_the_cells_over_a_fence_hold_everybody_inside_it() -> None:
    world = make_world(500, 60)
    precision = best_precision(world)
    places = list(world.places)
    for step in world.steps:
        cells = cells_over(step.fence, precision)
        assert {cell_of(places[i], precision) for i in step.receivers} <= set(cells)
        places[step.mover] = step.place
