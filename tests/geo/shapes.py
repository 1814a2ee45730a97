"""Hypothesis strategies for places and fences, rich in poles, antimeridians and shared borders."""

from hypothesis import strategies as st

from geomq.errors import GeometryError
from geomq.geo import HALF_CIRCUMFERENCE_M, Circle, Fence, Location, MultiPolygon, Polygon

LATS = st.sampled_from([-90.0, -89.99999, -60.0, 0.0, 1.0, 60.0, 89.99999, 90.0]) | st.floats(-90, 90)
LONS = st.sampled_from([-180.0, -179.99999, -90.0, 0.0, 1.0, 90.0, 179.99999, 180.0]) | st.floats(-180, 180)
NEAR = st.floats(-0.01, 0.01)
LOCATIONS = st.builds(Location, LATS, LONS) | st.builds(lambda a, b: Location(50 + a, 8 + b), NEAR, NEAR)
RADII = st.sampled_from([0.0, 1.0, HALF_CIRCUMFERENCE_M / 2, HALF_CIRCUMFERENCE_M]) | st.floats(0, 7.3).map(
    lambda exponent: min(10**exponent, HALF_CIRCUMFERENCE_M)
)
CIRCLES = st.builds(Circle, LOCATIONS, RADII)

SQUARE = Polygon([[(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)]])
ARCTIC = Polygon([[(60, -180), (60, 0), (60, 180), (90, 180), (90, -180), (60, -180)]])
ACROSS = MultiPolygon(
    [
        Polygon([[(-10, 170), (-10, 180), (10, 180), (10, 170), (-10, 170)]]),
        Polygon([[(-10, -180), (-10, -170), (10, -170), (10, -180), (-10, -180)]]),
    ]
)


@st.composite
def triangles(draw: st.DrawFn) -> Polygon:
    """A triangle of places, or the unit square where the places span no valid one."""
    first, *others = [draw(st.builds(Location, LATS, LONS)) for _ in range(3)]
    try:
        return Polygon([[first, *others, first]])
    except GeometryError:
        return SQUARE


@st.composite
def small_boxes(draw: st.DrawFn) -> Polygon:
    """A box of up to two degrees, often on a border of the map."""
    south, west = draw(LATS.filter(lambda lat: lat <= 88)), draw(LONS.filter(lambda lon: lon <= 178))
    north, east = south + draw(st.floats(0.001, 2)), west + draw(st.floats(0.001, 2))
    return Polygon([[(south, west), (south, east), (north, east), (north, west), (south, west)]])


PLANAR: st.SearchStrategy[Polygon | MultiPolygon] = triangles() | small_boxes() | st.sampled_from([ARCTIC, ACROSS])
FENCES: st.SearchStrategy[Fence] = CIRCLES | PLANAR
