"""Who the brokers are and whose area a fence meets."""

import pytest
from tests.routing.stage import circle, row_of_squares

from geomq.errors import ConfigError
from geomq.geo import Location, NearestAreas, Polygon, SoleArea
from geomq.routing.core import topology as module
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation


def test_two_brokers_of_one_name_are_refused() -> None:
    twins = [BrokerSite(BrokerId("a"), Location(0, 0)), BrokerSite(BrokerId("a"), Location(1, 1))]
    with pytest.raises(ConfigError, match="same name"):
        Federation(twins, NearestAreas([broker.location for broker in twins]))


def test_areas_have_to_fit_the_brokers() -> None:
    with pytest.raises(ConfigError, match="2 brokers but areas for 1"):
        Federation(row_of_squares(2).brokers, SoleArea())


def test_no_fence_meets_every_area() -> None:
    assert row_of_squares(3).touched(None) == ("b1", "b2", "b3")


def test_touched_brokers_come_in_federation_order() -> None:
    assert row_of_squares(4).touched(circle(5, 25, 700)) == ("b2", "b3", "b4")


def test_a_place_outside_all_areas_has_no_owner() -> None:
    federation = row_of_squares(2)
    assert federation.owner(Location(5, 15)) == "b2"
    assert federation.owner(Location(-40, 15)) is None


def test_a_broker_alone_owns_the_earth() -> None:
    federation = Federation.alone(BrokerId("me"))
    assert federation.owner(Location(-80, 170)) == "me"
    assert federation.touched(circle(-80, 170, 1)) == ("me",)


def test_answers_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_MAX", 10)
    federation = row_of_squares(3)
    for number in range(100):
        federation.touched(circle(5, number % 30, 10 + number))
        assert len(federation._touched) <= 10
    assert federation.touched(circle(5, 15, 50)) == ("b2",)


def test_large_fences_are_remembered_within_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_VERTICES_MAX", 20)
    federation = row_of_squares(3)
    for number in range(20):
        corner = 1 + number / 100
        assert federation.touched(Polygon([[(1, 1), (1, 2), (corner + 1, 2), (corner + 1, 1), (1, 1)]])) == ("b1",)
        assert sum(fence.vertices for fence in federation._touched) <= 25


def test_distances_are_between_the_brokers_places() -> None:
    federation = row_of_squares(2)
    assert federation.distance_m(BrokerId("b1"), BrokerId("b2")) == pytest.approx(1_107_700, rel=0.01)
