"""Fences: the area an event or a subscription relates to, as a circle, a polygon or a multipolygon.

Owns the union of the three. Each knows `contains`, `contains_many`, `bounds` and `meets_box`; all are closed,
immutable, hashable and equal by value. "Everywhere" is not a fence; callers write None.
"""

from geomq.geo.box import Box
from geomq.geo.circle import Circle
from geomq.geo.polygon import MultiPolygon, Polygon

Fence = Circle | Polygon | MultiPolygon

__all__ = ["Box", "Circle", "Fence", "MultiPolygon", "Polygon"]
