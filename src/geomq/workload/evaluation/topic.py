"""One topic laid out for the kernel: versions of subscriptions and locations by client, and the events.

Owns the way from packed records to arrays: unit vectors, fence limits and the brokers each fence touches.
Subscribers are numbered from 0 within the topic.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.geo import chord_limits, m_to_degrees, unit_vectors
from geomq.workload.evaluation.packed import KIND_BITS, Records
from geomq.workload.model import DEGREE, NO_FENCE, Kind
from geomq.workload.world import World

Floats = NDArray[np.float64]
Masks = NDArray[np.uint64]
FOREVER = 2**31 - 1
# The column of a point that holds the fence's limit.
LIMIT = 3
# More than the tolerance of a fence's border, in metres, so that no candidate is overlooked.
REACH_MARGIN_M = 1.0
MARGIN_DEG = 1e-6
RADIAN = math.pi / 180.0


class TopicData(NamedTuple):
    """Arrays of one topic. `sub_*` and `loc_*` are versions grouped by subscriber, in time order.

    A `point` is x, y, z on the unit sphere, and for fences the limit of the squared chord; infinity means no fence. A
    `circle` is latitude, longitude, reach and half-width in degrees, for finding candidates. `sub_told` are the brokers
    that hear of a version, `sub_held` those that hold it afterwards, both as bits; `event_to` the brokers that match an
    event where it matters which. A version says the same as those before it `since` then. Per broadcast group,
    `wanted_at` is when the cloud knows that it wants the topic.
    """

    home: NDArray[np.int32]
    sub_start: NDArray[np.int64]
    sub_client: NDArray[np.int32]
    sub_t: NDArray[np.int32]
    sub_point: Floats
    sub_told: Masks
    sub_held: Masks
    sub_since: NDArray[np.int32]
    loc_start: NDArray[np.int64]
    loc_client: NDArray[np.int32]
    loc_t: NDArray[np.int32]
    loc_until: NDArray[np.int32]
    loc_point: Floats
    loc_since: NDArray[np.int32]
    event_t: NDArray[np.int32]
    event_home: NDArray[np.int32]
    event_circle: Floats
    event_point: Floats
    event_to: Masks
    event_located: NDArray[np.bool_]
    publisher_circle: Floats
    publisher_point: Floats
    wanted_at: NDArray[np.int64]


class TopicPlaces(NamedTuple):
    """Degrees of the versions, for the spatial indexes only."""

    loc_lat: Floats
    loc_lon: Floats
    sub_lat: Floats
    sub_lon: Floats


def lay_out(
    records: Records, world: World, last_clients: NDArray[np.int64], wanted_at: NDArray[np.int64], *, paper: bool
) -> tuple[TopicData, TopicPlaces]:
    """The arrays of a topic from its records in client order; `last_clients` counts clients up to each broker."""
    t = records["when"] >> KIND_BITS
    kind = records["when"] & ((1 << KIND_BITS) - 1)
    lat, lon = records["lat_e7"] / DEGREE, records["lon_e7"] / DEGREE
    subs = np.flatnonzero(kind == Kind.SUBSCRIPTION)
    events = np.flatnonzero(kind == Kind.EVENT)
    located = np.flatnonzero(kind == Kind.LOCATION)
    clients = np.unique(records["client"][subs])
    of_subscriber = located[np.isin(records["client"][located], clients, assume_unique=False)]
    sub_client = np.searchsorted(clients, records["client"][subs]).astype(np.int32)
    loc_client = np.searchsorted(clients, records["client"][of_subscriber]).astype(np.int32)
    homes = np.searchsorted(last_clients, records["client"], side="right").astype(np.int32)
    home = np.searchsorted(last_clients, clients, side="right").astype(np.int32)
    published_from = _known_place(records, located, events)
    told, held = _subscription_masks(world, records, subs, sub_client, home, paper=paper)
    sub_radius, event_radius = records["radius_cm"][subs], records["radius_cm"][events]
    sub_reach = np.full(len(events), _reach(sub_radius).max(initial=0.0))
    data = TopicData(
        home,
        np.searchsorted(sub_client, np.arange(len(clients) + 1)),
        sub_client,
        t[subs],
        np.stack((*unit_vectors(lat[subs], lon[subs]), _limits(sub_radius)), axis=1),
        told,
        held,
        _since(sub_client, t[subs], lat[subs], lon[subs], sub_radius),
        np.searchsorted(loc_client, np.arange(len(clients) + 1)),
        loc_client,
        t[of_subscriber],
        until_next(loc_client, t[of_subscriber]),
        np.stack(unit_vectors(lat[of_subscriber], lon[of_subscriber]), axis=1),
        _since(loc_client, t[of_subscriber], lat[of_subscriber], lon[of_subscriber]),
        t[events],
        homes[events],
        _circles(lat[events], lon[events], _reach(event_radius)),
        np.stack((*unit_vectors(lat[events], lon[events]), _limits(event_radius)), axis=1),
        _event_masks(world, records, events, homes[events], paper=paper),
        published_from >= 0,
        _circles(lat[published_from], lon[published_from], sub_reach),
        np.stack(unit_vectors(lat[published_from], lon[published_from]), axis=1),
        wanted_at,
    )
    return data, TopicPlaces(lat[of_subscriber], lon[of_subscriber], lat[subs], lon[subs])


def _known_place(records: Records, located: NDArray[np.intp], events: NDArray[np.intp]) -> NDArray[np.intp]:
    """Per event the row of its publisher's last location, or -1: what its home knows when the event comes."""
    if not len(located):
        return np.full(len(events), -1, np.intp)
    before = np.searchsorted(located, events) - 1
    row = located[np.maximum(before, 0)]
    known = (before >= 0) & (records["client"][row] == records["client"][events])
    return np.where(known, row, -1)


def until_next(client: NDArray[np.int32], t: NDArray[np.int32]) -> NDArray[np.int32]:
    """When the next version of the same client begins."""
    until = np.full(len(t), FOREVER, np.int32)
    same = client[:-1] == client[1:]
    until[:-1][same] = t[1:][same]
    return until


def _since(client: NDArray[np.int32], t: NDArray[np.int32], *says: NDArray[Any]) -> NDArray[np.int32]:
    """When the first of the versions that say the same, one after the other, came."""
    new = np.ones(len(t), np.bool_)
    new[1:] = client[1:] != client[:-1]
    for each in says:
        new[1:] |= each[1:] != each[:-1]
    since: NDArray[np.int32] = t[np.maximum.accumulate(np.where(new, np.arange(len(t)), 0))]
    return since


def _limits(radius_cm: NDArray[np.int32]) -> Floats:
    limits = chord_limits(np.maximum(radius_cm, 0) / 100.0)
    return np.where(radius_cm == NO_FENCE, np.inf, limits)


def _reach(radius_cm: NDArray[np.int32]) -> Floats:
    """How many degrees a fence reaches, a little more than exactly; infinite without one."""
    degrees = np.minimum((np.maximum(radius_cm, 0) / 100.0 + REACH_MARGIN_M) * m_to_degrees(1.0), 180.0)
    return np.where(radius_cm == NO_FENCE, np.inf, degrees)


def _circles(lat: Floats, lon: Floats, reach: Floats) -> Floats:
    """Rows of latitude, longitude, reach, and the degrees of longitude reached to each side, a little too many."""
    share = np.sin(np.minimum(reach + MARGIN_DEG, 90.0) * RADIAN) / np.maximum(np.cos(lat * RADIAN), 1e-9)
    half = np.arcsin(np.minimum(share, 1.0)) / RADIAN + MARGIN_DEG
    half = np.where((np.abs(lat) + reach + MARGIN_DEG >= 90.0) | (share >= 1.0), 360.0, half)
    return np.stack((lat, lon, reach, half), axis=1)


def touched(world: World, records: Records, rows: NDArray[np.intp]) -> Masks:
    """The brokers whose area each fence touches; all of them where there is no fence."""
    radius_cm = records["radius_cm"][rows]
    masks = world.areas.touched_masks(
        records["lat_e7"][rows] / DEGREE, records["lon_e7"][rows] / DEGREE, np.maximum(radius_cm, 0) / 100.0
    )
    masks[radius_cm == NO_FENCE] = everyone_mask(len(world))
    return masks


def mask_words(brokers: int) -> int:
    """How many numbers of 64 bits a mask of brokers has."""
    return (brokers + 63) // 64


def everyone_mask(brokers: int) -> Masks:
    mask = np.zeros(mask_words(brokers), np.uint64)
    for broker in range(brokers):
        mask[broker >> 6] |= np.uint64(1) << np.uint64(broker & 63)
    return mask


def home_bits(home: NDArray[np.int32], words: int) -> Masks:
    """A mask with one bit per row: that of its home."""
    bits = np.zeros((len(home), words), np.uint64)
    bits[np.arange(len(home)), home >> 6] = np.uint64(1) << (home & 63).astype(np.uint64)
    return bits


def _event_masks(
    world: World, records: Records, events: NDArray[np.intp], home: NDArray[np.int32], *, paper: bool
) -> Masks:
    """Where disgb_events matches; the published code matches at home even if no area of it is touched."""
    masks = touched(world, records, events)
    return masks | home_bits(home, masks.shape[1]) if paper else masks


def _subscription_masks(
    world: World,
    records: Records,
    subs: NDArray[np.intp],
    client: NDArray[np.int32],
    home: NDArray[np.int32],
    *,
    paper: bool,
) -> tuple[Masks, Masks]:
    """Who is sent each version under disgb_subscriptions, and who holds it then.

    Brokers that only the fence before touched learn that it left: by a removal, or in the published code by a full
    update that they go on holding. The home always knows; the published code also always holds.
    """
    masks = touched(world, records, subs)
    mine = home_bits(home[client], masks.shape[1])
    told = masks | mine
    follows = np.flatnonzero(client[1:] == client[:-1]) + 1
    told[follows] |= masks[follows - 1]
    return told, told if paper else masks
