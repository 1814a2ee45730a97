"""A grid of cells over the sphere for one topic, built and asked inside the kernel.

Owns bands of equal height cut into cells of about equal size, and the entries of each cell. A query returns
every cell that a circle might reach, never fewer; exact tests are the caller's.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.topic import TopicData, TopicPlaces, until_next

HEIGHT_MIN_DEG = 0.02
HEIGHT_MAX_DEG = 30.0
_SPHERE_SQUARE_DEG = 41253.0
_RADIAN = math.pi / 180.0
_MARGIN_DEG = 1e-6


class CellIndex(NamedTuple):
    """Cells in rows of latitude; `entry` lists row numbers cell by cell."""

    height_deg: float
    columns: NDArray[np.int64]
    band_start: NDArray[np.int64]
    cell_start: NDArray[np.int64]
    entry: NDArray[np.int64]


class StateIndex(NamedTuple):
    """What a subscriber's home knew of it and when, in the order of the cells: a place, a subscription version (-1
    before the first), the time from `begin` to before `until`, and since when all has been the same."""

    cells: CellIndex
    begin: NDArray[np.int32]
    until: NDArray[np.int32]
    point: NDArray[np.float64]
    client: NDArray[np.int32]
    version: NDArray[np.int32]
    since: NDArray[np.int32]


class FenceIndex(NamedTuple):
    """The subscription versions of a topic in the order of the cells, each with its fence as the topic has it."""

    cells: CellIndex
    begin: NDArray[np.int32]
    until: NDArray[np.int32]
    point: NDArray[np.float64]
    client: NDArray[np.int32]


def build_fences(topic: TopicData, places: TopicPlaces, reach_deg: float) -> FenceIndex:
    """Index all subscription versions of a topic by the centre of their fence."""
    cells = build_index(places.sub_lat, places.sub_lon, reach_deg)
    order = cells.entry
    until = until_next(topic.sub_client, topic.sub_t)[order]
    return FenceIndex(cells, topic.sub_t[order], until, topic.sub_point[order], topic.sub_client[order])


def build_states(topic: TopicData, places: TopicPlaces, typical_deg: float) -> StateIndex:
    """Index all states of a topic's subscribers that have a location."""
    place, version, begin, until = _states(topic)
    cells = build_index(places.loc_lat[place], places.loc_lon[place], typical_deg)
    place, version = place[cells.entry], version[cells.entry]
    return StateIndex(
        cells,
        begin[cells.entry],
        until[cells.entry],
        topic.loc_point[place],
        topic.loc_client[place],
        version,
        np.maximum(topic.loc_since[place], np.where(version < 0, 0, topic.sub_since[version])),
    )


@compiled
def _states(topic: TopicData) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Cut each subscriber's time wherever its location or its subscription changes."""
    most = len(topic.loc_t) + len(topic.sub_t)
    place, version = np.empty(most, np.int32), np.empty(most, np.int32)
    begin, until = np.empty(most, np.int32), np.empty(most, np.int32)
    size = 0
    for client in range(len(topic.home)):
        sub, sub_end = topic.sub_start[client] - 1, topic.sub_start[client + 1]
        first = sub
        for loc in range(topic.loc_start[client], topic.loc_start[client + 1]):
            t, end = topic.loc_t[loc], topic.loc_until[loc]
            while sub + 1 < sub_end and topic.sub_t[sub + 1] <= t:
                sub += 1
            while t < end:
                cut = end
                if sub + 1 < sub_end and topic.sub_t[sub + 1] < end:
                    cut = topic.sub_t[sub + 1]
                if cut > t:
                    place[size], version[size] = loc, (sub if sub > first else -1)
                    begin[size], until[size] = t, cut
                    size += 1
                t = cut
                if t < end:
                    sub += 1
    return place[:size], version[:size], begin[:size], until[:size]


def build_index(lat: NDArray[np.float64], lon: NDArray[np.float64], typical_deg: float) -> CellIndex:
    """Index places in degrees for queries of about `typical_deg` radius."""
    finest = math.sqrt(_SPHERE_SQUARE_DEG / (4 * len(lat) + 16))
    height = min(max(typical_deg / 2, finest, HEIGHT_MIN_DEG), HEIGHT_MAX_DEG)
    bands = math.ceil(180.0 / height)
    height = 180.0 / bands
    edges = np.abs(-90.0 + height * np.arange(bands + 1))
    widest = np.cos(np.minimum(edges[:-1], edges[1:]) * _RADIAN)
    columns = np.maximum(1, np.floor(360.0 * widest / height)).astype(np.int64)
    band_start = np.concatenate(([0], np.cumsum(columns)))
    cell_start, entry = _fill(lat, lon, height, columns, band_start)
    return CellIndex(height, columns, band_start, cell_start, entry)


@compiled
def _fill(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    height: float,
    columns: NDArray[np.int64],
    band_start: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    cells = np.empty(len(lat), np.int64)
    start = np.zeros(band_start[-1] + 1, np.int64)
    for i in range(len(lat)):
        band = min(max(int((lat[i] + 90.0) / height), 0), len(columns) - 1)
        column = int((lon[i] + 180.0) / 360.0 * columns[band]) % columns[band]
        cells[i] = band_start[band] + column
        start[cells[i] + 1] += 1
    for cell in range(len(start) - 1):
        start[cell + 1] += start[cell]
    filled = start[:-1].copy()
    entry = np.empty(len(lat), np.int64)
    for i in range(len(lat)):
        entry[filled[cells[i]]] = i
        filled[cells[i]] += 1
    return start, entry


@compiled
def cell_range(index: CellIndex, lat: float, reach: float) -> tuple[int, int]:
    """First and last band that a circle of `reach` degrees around `lat` may touch."""
    last = len(index.columns) - 1
    low = int((lat - reach - _MARGIN_DEG + 90.0) / index.height_deg)
    high = int((lat + reach + _MARGIN_DEG + 90.0) / index.height_deg)
    return min(max(low, 0), last), min(max(high, 0), last)


@compiled
def column_range(index: CellIndex, band: int, lon: float, half: float) -> tuple[int, int]:
    """First column and number of columns of a band within `half` degrees of longitude, counted round the earth."""
    columns = index.columns[band]
    if half >= 180.0:
        return 0, columns
    first = math.floor((lon - half + 180.0) / 360.0 * columns)
    last = math.floor((lon + half + 180.0) / 360.0 * columns)
    return first, min(last - first + 1, columns)
