"""RocksDB underneath the store: its troubles become one line, its damage never looks like the end."""

import os
from pathlib import Path

import pytest

from geomq.broker.storage.disk import RocksDisk
from geomq.broker.storage.errors import StoreError, StoreFull, store_error
from geomq.broker.storage.store import open_store
from geomq.broker.storage.writes import Writes


def test_writes_are_there_after_a_failed_one_and_a_new_opening(tmp_path: Path) -> None:
    disk = RocksDisk(str(tmp_path / "store"), sync=True, free_bytes_min=0)
    writes = Writes()
    writes.put(b"a", b"1")
    writes.put_new(b"p1", b"x")
    writes.delete_prefix(b"p")
    writes.put(b"p2", b"y")
    disk.write(writes)
    disk._broken = True
    disk.write(writes)
    disk.sync()
    assert list(disk.items()) == [(b"a", b"1"), (b"p2", b"y")]
    disk.close()


def test_a_damaged_file_is_reported_not_cut_short(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.load()
    for number in range(2_000):
        store.put_note("k", b"%06d" % number, os.urandom(200))
    store.close()
    for _ in range(2):
        largest = max((tmp_path / "store").glob("*.sst"), key=lambda path: path.stat().st_size, default=None)
        if largest is not None:
            break
        store = open_store(tmp_path / "store")
        store.load()
        store.close()
    assert largest is not None
    data = bytearray(largest.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    largest.write_bytes(data)
    store = open_store(tmp_path / "store")
    with pytest.raises(StoreError, match="cannot read it: Corruption"):
        store.load()
    store.close()


def test_two_brokers_cannot_share_a_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with pytest.raises(StoreError, match="another broker uses it"):
        open_store(tmp_path / "store")
    store.close()


def test_a_path_that_cannot_be_a_store_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make it"):
        open_store(tmp_path / "file")


def test_words_of_rocksdb_become_one_line() -> None:
    assert isinstance(store_error("p", "write", Exception("IO error: No space left on device: x")), StoreFull)
    assert str(store_error("p", "write", Exception("Busy:\n  bad"))) == "store p: cannot write it: Busy: bad"
    assert str(store_error("p", "write", Exception("Corruption:\n  bad"))) == (
        "store p is damaged: cannot write it: Corruption: bad; see what is lost with `geomq store check p`, save the"
        " rest with `geomq store repair p`"
    )


def test_too_little_free_space_is_noticed_before_the_disk_is_full(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", free_bytes_min=1)
    assert store.has_room()
    store.close()
    store = open_store(tmp_path / "b", free_bytes_min=1 << 60)
    assert not store.has_room()
    store.close()
