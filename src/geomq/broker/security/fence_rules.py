"""Rules about areas: into which fence a client may publish, and from where.

A rule allows or denies one direction, for all topics or for those of one filter. Geometry that cannot be
decided exactly is decided against the client: a fence counts as inside an allowed one only if it surely is,
and as touching a denied one if it may.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import shapely

from geomq.geo import Box, Circle, Fence, Location, destinations, distance_m
from geomq.mqtt.codec.topics import topic_matches

Direction = Literal["into", "from"]

OUTLINE_POINTS = 64
OUTLINE_RADIUS_MAX_M = 500_000.0
OUTLINE_MARGIN = 1.01
EDGE_PARTS = 256


@dataclass(frozen=True, slots=True)
class FenceRule:
    """One `fence` line of an ACL file."""

    direction: Direction
    deny: bool
    fence: Fence
    topic_filter: str | None = None


class FenceRules:
    """All fence rules that hold for one client."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tuple[FenceRule, ...]) -> None:
        self._rules = rules

    def may_publish_from(self, topic: str, location: Location | None) -> bool:
        """Whether a publisher at `location` may; one without a location fails every rule that applies."""
        rules = self._applying("from", topic)
        if not rules:
            return True
        if location is None:
            return False
        if any(rule.deny and rule.fence.contains(location) for rule in rules):
            return False
        allowing = [rule for rule in rules if not rule.deny]
        return not allowing or any(rule.fence.contains(location) for rule in allowing)

    def may_publish_into(self, topic: str, fence: Fence | None) -> bool:
        """Whether an event with this fence may; one without a fence goes everywhere and fails every rule."""
        rules = self._applying("into", topic)
        if not rules:
            return True
        if fence is None:
            return False
        if any(rule.deny and fences_may_meet(fence, rule.fence) for rule in rules):
            return False
        allowing = [rule for rule in rules if not rule.deny]
        return not allowing or any(surely_within(fence, rule.fence) for rule in allowing)

    def _applying(self, direction: Direction, topic: str) -> list[FenceRule]:
        return [
            rule
            for rule in self._rules
            if rule.direction == direction and (rule.topic_filter is None or topic_matches(rule.topic_filter, topic))
        ]


def surely_within(inner: Fence, outer: Fence) -> bool:
    """True only if every place of `inner` lies in `outer`."""
    if inner == outer:
        return True
    if isinstance(inner, Circle):
        if isinstance(outer, Circle):
            return distance_m(inner.center, outer.center) + inner.radius_m <= outer.radius_m
        return all(shapely.covers(outer.shape, shape) for shape in _outline(inner))
    if isinstance(outer, Circle):
        return _shape_in_circle(inner.shape, outer)
    return bool(shapely.covers(outer.shape, inner.shape))


def fences_may_meet(one: Fence, other: Fence) -> bool:
    """False only if the two share no place."""
    if isinstance(one, Circle):
        if isinstance(other, Circle):
            return distance_m(one.center, other.center) <= one.radius_m + other.radius_m
        return any(shapely.intersects(other.shape, shape) for shape in _outline(one)) or any(
            other.meets_box(box) for box in _edge_boxes(one)
        )
    if isinstance(other, Circle):
        return fences_may_meet(other, one)
    return one.meets_shape(other)


def _outline(circle: Circle) -> list[Any]:
    """Shapes in the longitude/latitude plane that together cover the circle, tightly if it is small."""
    boxes = circle.bounds()
    if len(boxes) > 1 or circle.radius_m > OUTLINE_RADIUS_MAX_M or max(map(abs, boxes[0][:2])) > 85.0:
        return [shapely.box(box.lon_min, box.lat_min, box.lon_max, box.lat_max) for box in boxes]
    bearings = np.linspace(0.0, 360.0, OUTLINE_POINTS, endpoint=False)
    radius_m = max(circle.radius_m * OUTLINE_MARGIN, 0.01)
    lat, lon = np.full(OUTLINE_POINTS, circle.center.lat), np.full(OUTLINE_POINTS, circle.center.lon)
    lats, lons = destinations(lat, lon, bearings, np.full(OUTLINE_POINTS, radius_m))
    if float(np.ptp(lons)) > 180.0:
        return [shapely.box(box.lon_min, box.lat_min, box.lon_max, box.lat_max) for box in boxes]
    return [shapely.Polygon(np.column_stack((lons, lats)))]


def _edge_boxes(circle: Circle) -> list[Box]:
    """The circle's boxes where they touch the antimeridian or a pole, which have two names."""
    return [
        box
        for box in circle.bounds()
        if box.lon_min == -180.0 or box.lon_max == 180.0 or box.lat_min == -90.0 or box.lat_max == 90.0
    ]


def _shape_in_circle(shape: Any, circle: Circle) -> bool:
    """Whether all edges, cut into short parts, stay inside with a margin for what lies between the cuts."""
    west, south, east, north = shapely.bounds(shape)
    step = max(east - west, north - south) / EDGE_PARTS
    points = shapely.get_coordinates(shapely.segmentize(shape, step))
    sagitta_m = (step * 111_195.0) ** 2 / 6_371_000.0 * math.tan(math.radians(min(89.0, max(abs(south), abs(north)))))
    radius_m = circle.radius_m - sagitta_m
    if radius_m <= 0.0 or circle.radius_m > 9_000_000.0:
        return False
    return bool(Circle(circle.center, radius_m).contains_many(points[:, 1], points[:, 0]).all())
