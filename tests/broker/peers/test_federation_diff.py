"""How much of the earth a change moves."""

from geomq.broker.peers.federation_diff import POINTS, area_moves
from geomq.geo import Location, NearestAreas, PolygonAreas, parse_fence
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation

POLES = [BrokerSite(BrokerId("north"), Location(89.0, 0.0)), BrokerSite(BrokerId("south"), Location(-89.0, 0.0))]
EARTH_KM2 = 510_000_000


def halves(*brokers: BrokerSite) -> Federation:
    return Federation(brokers, NearestAreas([broker.location for broker in brokers]))


def test_nothing_moves_if_nothing_changes() -> None:
    assert area_moves(halves(*POLES), halves(*POLES)) == []


def test_one_that_leaves_gives_its_half_to_the_other() -> None:
    alone = Federation.alone(BrokerId("north"), POLES[0].location)
    (move,) = area_moves(halves(*POLES), alone)
    assert (move.from_, move.to) == ("south", "north")
    assert abs(move.km2 / (EARTH_KM2 / 2) - 1) < 0.01
    (back,) = area_moves(alone, halves(*POLES))
    assert (back.from_, back.to) == ("north", "south")


def test_what_no_given_area_holds_goes_to_nobody() -> None:
    squares = [
        parse_fence("POLYGON((0 0, 10 0, 10 10, 0 10, 0 0))"),
        parse_fence("POLYGON((0 -10, 10 -10, 10 0, 0 0, 0 -10))"),
    ]
    moves = area_moves(halves(*POLES), Federation(POLES, PolygonAreas(squares)))
    assert {(move.from_, move.to) for move in moves} == {("north", None), ("south", None)}
    assert abs(sum(move.km2 for move in moves) / EARTH_KM2 - 1) < 0.01
    assert POINTS == 20_000
