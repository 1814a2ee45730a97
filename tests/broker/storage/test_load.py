"""Reading a store: the format is checked, epochs only grow, damage is named."""

import pytest

from geomq.broker.storage.errors import StoreError
from geomq.broker.storage.load import read_state
from geomq.broker.storage.records import EPOCH_KEY, FORMAT_KEY, named
from geomq.broker.storage.writes import Writes


def replay(writes: Writes) -> dict[bytes, bytes]:
    data: dict[bytes, bytes] = {}
    writes.replay(data.__setitem__, lambda key: data.pop(key, None), lambda begin, end: None)
    return data


def test_every_start_is_a_new_epoch() -> None:
    items: dict[bytes, bytes] = {}
    for epoch in (1, 2, 3):
        writes = Writes()
        assert read_state(sorted(items.items()), writes).state.epoch == epoch
        items |= replay(writes)
    assert items == {FORMAT_KEY: b"1", EPOCH_KEY: (3).to_bytes(8)}


def test_a_format_from_the_future_is_refused_before_anything_is_written() -> None:
    writes = Writes()
    with pytest.raises(StoreError, match="newer GeoMQ"):
        read_state([(EPOCH_KEY, bytes(8)), (FORMAT_KEY, b"9")], writes)
    assert not writes.keys
    assert not writes.sealed


@pytest.mark.parametrize("key", [b"", b"zzz", b"d\x00", named(b"S", "c"), b"m" + bytes(8)])
def test_a_record_that_does_not_decode_is_damage(key: bytes) -> None:
    with pytest.raises(StoreError, match="the store is damaged"):
        read_state([(FORMAT_KEY, b"1"), (key, b"\xc1")], Writes())


def test_a_delivery_without_its_message_is_damage() -> None:
    items = [(FORMAT_KEY, b"1"), (b"r" + b"topic", b"\x92\x07\x80")]
    with pytest.raises(StoreError, match="the store is damaged"):
        read_state(items, Writes())
