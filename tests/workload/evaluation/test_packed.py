"""Packing actions by topic and laying them out again."""

import numpy as np
import pytest

from geomq.errors import DataError
from geomq.workload.evaluation.kernel_index import build_index, cell_range, column_range
from geomq.workload.evaluation.moves import moves_of
from geomq.workload.evaluation.packed import KIND_BITS, pack, pieces, records_of
from geomq.workload.evaluation.topic import everyone_mask, home_bits
from geomq.workload.generation.disgb import preset
from geomq.workload.model import Kind
from geomq.workload.world import World


def test_packing_keeps_every_action_and_copies_locations_to_each_topic() -> None:
    world, spec = World.published(), preset("paper", clients=6000, topics=50)
    blocks = [spec.block(world, 1, number) for number in range(2)]
    packed = pack(blocks)
    kinds = np.bincount(packed.records["when"] & 3, minlength=3)
    own = np.sum([np.bincount(block.actions.kind, minlength=3) for block in blocks], axis=0)
    assert kinds.tolist() == [own[0] * 5, own[1], own[2]]
    assert sum(len(records) for _, records in pieces(packed)) == len(packed.records)


def test_records_come_back_in_client_order_however_they_were_split() -> None:
    world, spec = World.published(), preset("paper", clients=11_000, topics=5)
    whole = dict(pieces(pack([spec.block(world, 1, number) for number in range(3)])))
    apart = [dict(pieces(pack([spec.block(world, 1, number)]))) for number in (2, 0, 1)]
    for topic, records in whole.items():
        a, b = records_of([records.tobytes()]), records_of([part[topic].tobytes() for part in apart])
        assert np.array_equal(a, b)
        key = (a["client"].astype(np.int64) << 32) | a["when"]
        assert np.all(np.diff(key) >= 0)
    assert KIND_BITS == 2


def test_bytes_that_end_inside_a_record_are_refused() -> None:
    with pytest.raises(DataError, match="end inside a record"):
        records_of([b"x" * 39])


def test_masks_hold_one_bit_per_broker() -> None:
    assert [int(word).bit_count() for word in everyone_mask(70)] == [64, 6]
    bits = home_bits(np.array([0, 69], np.int32), 2)
    assert bits.tolist() == [[1, 0], [0, 32]]


def test_the_index_finds_every_point_within_reach() -> None:
    random = np.random.default_rng(5)
    lat, lon = random.uniform(-90, 90, 400), random.uniform(-180, 180, 400)
    cells = build_index(lat, lon, 8.0)
    assert sorted(cells.entry.tolist()) == list(range(400))
    found = 0
    for i in range(400):
        low, high = cell_range(cells, lat[i], 8.0)
        first, count = column_range(cells, min(max(low, 0), high), lon[i], 360.0)
        assert (first, count) == (0, cells.columns[low])
        found += high - low + 1
    assert found > 400


def test_moves_are_sorted_by_client_and_time() -> None:
    world, spec = World.published(), preset("paper", clients=2000)
    block = spec.block(world, 1, 0)
    moves = moves_of(block, world, np.zeros(1000, np.int32), np.empty((0, 0, 0), np.int32))
    assert np.all(np.diff(moves.client) >= 0)
    assert int((moves.slot < 0).sum()) == int((block.actions.kind == Kind.LOCATION).sum())
