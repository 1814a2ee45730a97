"""Places as a program has them, written as the text that goes into a packet.

A location is `(lat, lon)`, a Location or text; a fence is `(lat, lon, radius in metres)`, a Fence or text. All
are checked before they are sent. The geometry package loads only when a place is used.
"""

from typing import TYPE_CHECKING

from geomq.errors import GeometryError

if TYPE_CHECKING:
    from geomq.geo import Fence, Location

    LocationLike = str | Location | tuple[float, float]
    FenceLike = str | Fence | tuple[float, float, float]
else:
    LocationLike = FenceLike = object


def location_of(place: "LocationLike") -> "Location":
    """The location, or GeometryError in one line."""
    from geomq.geo import make_location, parse_location

    if isinstance(place, str):
        return parse_location(place)
    if len(place) != 2:
        raise GeometryError("a location must be (lat, lon)")
    return make_location(*place)


def location_text_of(place: "LocationLike") -> str:
    from geomq.geo import location_text

    return location_text(location_of(place))


def fence_text_of(fence: "FenceLike") -> str:
    """The fence as text; text that was given is checked and sent as it is."""
    from geomq.geo import Circle, fence_text, make_location, parse_fence

    if isinstance(fence, str):
        parse_fence(fence)
        return fence
    if isinstance(fence, tuple):
        if len(fence) != 3:
            raise GeometryError("a fence must be (lat, lon, radius in metres), a Fence or text")
        lat, lon, radius_m = fence
        return fence_text(Circle(make_location(lat, lon), radius_m))
    return fence_text(fence)
