"""Cells: the nested latitude/longitude grids that both indexes hash places into.

The finest grid has 256 cells a degree (about 430 m at the equator); a coarser one drops `shift` low bits of
row and column. A cell is one integer. Flooring is monotone, so a place inside a box always falls into one
of the cells that `covering` lists for the box.
"""

from collections.abc import Sequence

from geomq.geo.box import Box

PER_DEGREE = 256.0
ROW_SHIFT = 17
"""Bits that hold a column: 360 degrees of the finest grid and the column of longitude 180 itself."""

Span = tuple[int, int, int, int]
"""First and last row, first and last column of the finest grid."""


def spans(boxes: Sequence[Box]) -> list[Span]:
    """The boxes in whole cells of the finest grid."""
    return [
        (
            int((south + 90.0) * PER_DEGREE),
            int((north + 90.0) * PER_DEGREE),
            int((west + 180.0) * PER_DEGREE),
            int((east + 180.0) * PER_DEGREE),
        )
        for south, north, west, east in boxes
    ]


def covering_count(covered: Sequence[Span], shift: int) -> int:
    """How many cells of a grid the spans cover, counting shared ones once per span."""
    total = 0
    for south, north, west, east in covered:
        total += ((north >> shift) - (south >> shift) + 1) * ((east >> shift) - (west >> shift) + 1)
    return total


def finest_fit(covered: Sequence[Span], shifts: Sequence[int], cells_max: int) -> int | None:
    """The position in `shifts`, finest first, of the first grid that needs at most `cells_max` cells."""
    for position, shift in enumerate(shifts):
        total = 0
        for south, north, west, east in covered:
            total += ((north >> shift) - (south >> shift) + 1) * ((east >> shift) - (west >> shift) + 1)
        if total <= cells_max:
            return position
    return None


def covering(covered: Sequence[Span], shift: int) -> list[int]:
    """The cells of a grid that the spans cover, each once, in a fixed order."""
    cells: list[int] = []
    for south, north, west, east in covered:
        first, end = west >> shift, (east >> shift) + 1
        for row in range(south >> shift, (north >> shift) + 1):
            base = row << ROW_SHIFT
            cells += range(base + first, base + end)
    return cells if len(covered) == 1 else list(dict.fromkeys(cells))
