"""What happens between two brokers on all topics, as rows that topics make and each pair of brokers is replayed from.

Owns the two kinds of rows, how a topic lays them out by pair, and how they become bytes and are brought together.
Strategies that look at single topics do not need them: see `pair_traffic`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.packed import KIND_BITS, Records
from geomq.workload.evaluation.pair_traffic import FIRST_DIRECT, FOUND_PLACED, MOVE, SUBSCRIPTION
from geomq.workload.evaluation.topic import TopicData
from geomq.workload.model import Kind

NO_PLACE = 2**31 - 1
# An event of the one broker whose fence meets the other's area: its fence, where its publisher was known to be, and how
# many match at the other.
EVENT = np.dtype(
    [(name, "<i4") for name in ("t", "client", "topic", "direct", "lat", "lon", "radius_cm", "from_lat", "from_lon")]
)
# A subscriber of the other broker after an update: how many of the kind it made before in this tick, whether its fence
# now meets the area of the one, the fence, the place.
TURN = ("t", "kind", "client", "turn")
UPDATE = np.dtype([(name, "<i4") for name in (*TURN, "topic", "meets", "lat", "lon", "radius_cm", "at_lat", "at_lon")])

Rows = NDArray[np.void]


class PairRows(NamedTuple):
    """The rows of one pair, publisher's broker first."""

    events: Rows
    updates: Rows


def rows_of(
    topic: int, records: Records, data: TopicData, found: NDArray[np.int32], brokers: int
) -> Iterator[tuple[int, PairRows]]:
    """The rows of a topic by `publisher * brokers + home`."""
    event_start, events = _events_of(topic, records, data, found, brokers)
    update_start, updates = _updates_of(topic, records, data, brokers)
    for pair in np.flatnonzero(np.diff(event_start) + np.diff(update_start)).tolist():
        yield (
            pair,
            PairRows(
                events[event_start[pair] : event_start[pair + 1]], updates[update_start[pair] : update_start[pair + 1]]
            ),
        )


def in_order(parts: Sequence[PairRows]) -> PairRows:
    """All rows of a pair in the order of time; inside a tick by kind, client, turn and topic."""
    events = np.concatenate([part.events for part in parts])
    updates = np.concatenate([part.updates for part in parts])
    order = np.lexsort(tuple(updates[name] for name in ("topic", *reversed(TURN))))
    return PairRows(events[np.lexsort((events["topic"], events["client"], events["t"]))], updates[order])


def to_bytes(parts: Sequence[PairRows]) -> bytes:
    """Rows of a pair, to be sent where all of them come together."""
    events = b"".join(part.events.tobytes() for part in parts)
    return len(events).to_bytes(8, "little") + events + b"".join(part.updates.tobytes() for part in parts)


def from_bytes(data: bytes) -> PairRows:
    """The rows whose bytes these are."""
    cut = 8 + int.from_bytes(data[:8], "little")
    return PairRows(np.frombuffer(data[8:cut], EVENT), np.frombuffer(data[cut:], UPDATE))


def _events_of(
    topic: int, records: Records, data: TopicData, found: NDArray[np.int32], brokers: int
) -> tuple[NDArray[np.int64], Rows]:
    made = records[_kinds(records) == Kind.EVENT]
    event, other = _set_bits(data.event_to, brokers)
    away = data.event_home[event] != other
    event, other = event[away], other[away]
    pair = data.event_home[event].astype(np.int64) * brokers + other
    rows = np.zeros(len(event), EVENT)
    rows["t"], rows["client"], rows["topic"] = data.event_t[event], made["client"][event], topic
    for name, column in (("lat", "lat_e7"), ("lon", "lon_e7"), ("radius_cm", "radius_cm")):
        rows[name] = made[column][event]
    rows["from_lat"], rows["from_lon"] = (degrees[event] for degrees in _known_places(records))
    if len(found):
        key = found[:, 0].astype(np.int64) * brokers + found[:, 1]
        order = np.argsort(key)
        wanted = event.astype(np.int64) * brokers + other
        row = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
        direct = found[:, FIRST_DIRECT:FOUND_PLACED].sum(axis=1)
        rows["direct"] = np.where(key[row] == wanted, direct[row], 0)
    order = np.argsort(pair, kind="stable")
    return np.searchsorted(pair[order], np.arange(brokers * brokers + 1)), rows[order]


def _kinds(records: Records) -> NDArray[np.int32]:
    kinds: NDArray[np.int32] = records["when"] & ((1 << KIND_BITS) - 1)
    return kinds


def _known_places(records: Records) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Where the publisher of each event was known to be."""
    kind = _kinds(records)
    events, located = np.flatnonzero(kind == Kind.EVENT), np.flatnonzero(kind == Kind.LOCATION)
    if not len(located):
        return np.full(len(events), NO_PLACE, np.int32), np.full(len(events), NO_PLACE, np.int32)
    row = located[np.maximum(np.searchsorted(located, events) - 1, 0)]
    known = (row < events) & (records["client"][row] == records["client"][events])
    lat, lon = (np.where(known, records[name][row], NO_PLACE) for name in ("lat_e7", "lon_e7"))
    return lat.astype(np.int32), lon.astype(np.int32)


def _set_bits(masks: NDArray[np.uint64], brokers: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and broker of every bit that is set, row by row."""
    octets = masks.astype("<u8").view(np.uint8).reshape(len(masks), 8 * masks.shape[1])
    row, broker = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little")[:, :brokers])
    return row, broker


def _updates_of(topic: int, records: Records, data: TopicData, brokers: int) -> tuple[NDArray[np.int64], Rows]:
    kind = _kinds(records)
    subscribers = np.unique(records["client"][kind == Kind.SUBSCRIPTION])
    chosen = np.flatnonzero((kind != Kind.EVENT) & np.isin(records["client"], subscribers))
    mine = records[chosen]
    client = np.searchsorted(subscribers, mine["client"])
    version, place, turn, stays = _versions(mine["client"], mine["when"], mine["lat_e7"], mine["lon_e7"])
    held = np.vstack((data.sub_held, np.zeros((1, data.sub_held.shape[1]), np.uint64)))
    before = np.concatenate(([-1], version[:-1]))
    before[np.concatenate(([True], client[1:] != client[:-1]))] = -1
    concerned = np.where(stays[:, None], np.uint64(0), held[version] | held[before])
    row, other = _set_bits(concerned, brokers)
    away = data.home[client[row]] != other
    row, other = row[away], other[away]
    pair = other * brokers + data.home[client[row]]
    order = np.argsort(pair, kind="stable")
    row, other, pair = row[order], other[order], pair[order]
    fences = mine[kind[chosen] == Kind.SUBSCRIPTION]
    rows = np.empty(len(row), UPDATE)
    rows["t"], rows["client"], rows["topic"] = mine["when"][row] >> KIND_BITS, mine["client"][row], topic
    rows["kind"] = np.where(kind[chosen][row] == Kind.SUBSCRIPTION, SUBSCRIPTION, MOVE)
    rows["turn"] = turn[row]
    bit = (held[version[row], other >> 6] >> (other & 63).astype(np.uint64)) & np.uint64(1)
    rows["meets"] = bit.astype(np.int32)
    for name, column in (("lat", "lat_e7"), ("lon", "lon_e7"), ("radius_cm", "radius_cm")):
        rows[name] = fences[column][version[row]]
    for name, column in (("at_lat", "lat_e7"), ("at_lon", "lon_e7")):
        rows[name] = np.where(place[row] < 0, NO_PLACE, mine[column][place[row]])
    return np.searchsorted(pair, np.arange(brokers * brokers + 1)), rows


@compiled
def _versions(
    client: NDArray[np.int32], when: NDArray[np.int32], lat: NDArray[np.int32], lon: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
    """After each update which subscription version and which row's place are in force, -1 for none; how many of its
    kind the client made before in the tick; and whether it changes nothing because the client is where it was."""
    version, place = np.full(len(client), -1, np.int64), np.full(len(client), -1, np.int64)
    turn, stays = np.zeros(len(client), np.int32), np.zeros(len(client), np.bool_)
    made = 0
    for i in range(len(client)):
        if i > 0 and client[i] == client[i - 1]:
            version[i], place[i] = version[i - 1], place[i - 1]
            turn[i] = turn[i - 1] + 1 if when[i] == when[i - 1] else 0
        if when[i] & ((1 << KIND_BITS) - 1) == SUBSCRIPTION:
            version[i] = made
            made += 1
        else:
            last = place[i]
            stays[i] = last >= 0 and lat[last] == lat[i] and lon[last] == lon[i]
            place[i] = i
    return version, place, turn, stays
