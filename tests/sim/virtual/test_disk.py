"""What a disk keeps, and how it fails."""

import random

import pytest

from geomq.broker.storage.errors import StoreError, StoreFull
from geomq.broker.storage.store import Store
from geomq.broker.storage.writes import Writes
from geomq.sim.virtual.disk import VirtualDisk
from geomq.sim.virtual.processes import Crashed, Process


def disk(seed: int = 1) -> VirtualDisk:
    return VirtualDisk(random.Random(seed))


def put(on: VirtualDisk, *keys: bytes) -> None:
    writes = Writes()
    for key in keys:
        writes.put(key, key)
    on.write(writes)


def keys(on: VirtualDisk) -> list[bytes]:
    return [key for key, _ in on.items()]


def test_what_was_written_survives_the_process_and_what_was_synced_the_machine() -> None:
    for seed in range(20):
        kept = disk(seed)
        put(kept, b"a", b"b")
        kept.begin_sync()
        kept.sync()
        put(kept, b"c", b"d")
        put(kept, b"e")
        assert keys(kept) == [b"a", b"b", b"c", b"d", b"e"]
        kept.lose_power()
        assert keys(kept) in ([b"a", b"b"], [b"a", b"b", b"c", b"d"], [b"a", b"b", b"c", b"d", b"e"])


def test_chance_decides_how_much_of_the_rest_is_kept() -> None:
    left = set()
    for seed in range(20):
        kept = disk(seed)
        put(kept, b"a")
        put(kept, b"b")
        kept.lose_power()
        left.add(len(kept))
    assert left == {0, 1, 2}


def test_a_sync_does_not_cover_what_was_written_after_it_began() -> None:
    lost = False
    for seed in range(20):
        kept = disk(seed)
        put(kept, b"a")
        kept.begin_sync()
        put(kept, b"b")
        kept.sync()
        kept.lose_power()
        assert b"a" in keys(kept)
        lost = lost or b"b" not in keys(kept)
    assert lost


def test_ranges_and_keys_are_deleted() -> None:
    kept = disk()
    put(kept, b"a1", b"a2", b"b")
    writes = Writes()
    writes.delete_prefix(b"a")
    writes.put(b"a3", b"")
    writes.delete(b"b")
    kept.write(writes)
    assert keys(kept) == [b"a3"]
    kept.begin_sync()
    kept.sync()
    kept.lose_power()
    assert keys(kept) == [b"a3"]


def test_a_full_disk_refuses_and_has_room_again() -> None:
    kept = disk()
    kept.full = True
    with pytest.raises(StoreFull):
        put(kept, b"a")
    assert not kept.has_room()
    kept.full = False
    put(kept, b"a")
    assert keys(kept) == [b"a"]


def test_a_broken_disk_neither_writes_nor_syncs() -> None:
    kept = disk()
    kept.broken = True
    with pytest.raises(StoreError, match="written"):
        put(kept, b"a")
    with pytest.raises(StoreError, match="synced"):
        kept.sync()
    assert keys(kept) == []


def test_a_process_may_die_before_or_after_its_write() -> None:
    for count, expected in ((1, []), (2, [b"a"])):
        kept = disk()
        kept.process = Process("b", lambda _: None)
        kept.process.kill_at("disk", count)
        with pytest.raises(Crashed):
            put(kept, b"a")
        assert keys(kept) == expected


def test_a_store_lives_on_it() -> None:
    kept = disk()
    store = Store(kept)
    first = store.load().epoch
    store.close()
    assert Store(kept).load().epoch == first + 1
