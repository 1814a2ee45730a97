"""Actions as bytes: the rows of one topic from many blocks of clients, ready to be shipped and put together.

Owns the 20-byte record and the way from blocks to topics and back. A client's locations go to all its topics,
for each topic is evaluated by itself. Refuses bytes that are not a whole number of records.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.errors import DataError
from geomq.workload.model import NO_TOPIC, Block, Kind

# Time and kind share a number, so that sorting by it puts simultaneous updates before events.
KIND_BITS = 2
RECORD = np.dtype([("when", "<i4"), ("client", "<i4"), ("lat_e7", "<i4"), ("lon_e7", "<i4"), ("radius_cm", "<i4")])

Records = NDArray[np.void]


class Packed(NamedTuple):
    """Records sorted by topic, and where each topic's begin and end."""

    topics: NDArray[np.int32]
    bounds: NDArray[np.int64]
    records: Records


def pack(blocks: Sequence[Block]) -> Packed:
    """The records of some blocks, grouped by topic."""
    parts = [_block_records(block) for block in blocks]
    topic = np.concatenate([part[0] for part in parts])
    records = np.concatenate([part[1] for part in parts])
    order = np.argsort(topic, kind="stable")
    topic = topic[order]
    cuts = np.flatnonzero(np.diff(topic)) + 1
    bounds = np.concatenate(([0], cuts, [len(topic)]))
    return Packed(topic[bounds[:-1]] if len(topic) else topic, bounds, records[order])


def pieces(packed: Packed) -> Iterator[tuple[int, Records]]:
    """Topic by topic, its records."""
    for i, topic in enumerate(packed.topics.tolist()):
        yield topic, packed.records[packed.bounds[i] : packed.bounds[i + 1]]


def records_of(buffers: Sequence[bytes | memoryview]) -> Records:
    """One topic's records from the bytes of its parts, sorted by client, then time, then kind."""
    arrays = []
    for buffer in buffers:
        if len(buffer) % RECORD.itemsize:
            raise DataError(f"packed actions end inside a record of {RECORD.itemsize} bytes")
        arrays.append(np.frombuffer(buffer, RECORD))
    return in_client_order(np.concatenate(arrays) if len(arrays) != 1 else arrays[0])


def in_client_order(records: Records) -> Records:
    key = (records["client"].astype(np.int64) << 32) | records["when"]
    return records[np.argsort(key, kind="stable")]


def _block_records(block: Block) -> tuple[NDArray[np.int32], Records]:
    actions = block.actions
    is_location = actions.kind == Kind.LOCATION
    own = np.flatnonzero(~is_location)
    located = np.flatnonzero(is_location)
    topics = block.clients.topics[actions.client[located] - block.clients.client[0]]
    used = topics != NO_TOPIC
    rows = np.concatenate((own, np.repeat(located, used.sum(axis=1))))
    records = np.empty(len(rows), RECORD)
    records["when"] = (actions.t_ms[rows] << KIND_BITS) | actions.kind[rows]
    for name in ("client", "lat_e7", "lon_e7", "radius_cm"):
        records[name] = getattr(actions, name)[rows]
    return np.concatenate((actions.topic[own], topics[used])), records
