"""A store that lost what was synced is refused, whatever was damaged, and repaired without losing what can be read."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from geomq.broker.storage.disk import RocksDisk
from geomq.broker.storage.errors import StoreError
from geomq.broker.storage.logs_on_disk import logs_with_content, unknown_record
from geomq.broker.storage.repair import check_store, repair_store
from geomq.broker.storage.store import open_store
from geomq.broker.storage.synced import FILE, Synced, read_synced
from geomq.broker.storage.writes import Writes

Damage = Callable[[Path], object]

WRITER = textwrap.dedent(
    """
    import os, signal, sys
    from geomq.broker.storage import rocks_options
    if len(sys.argv) > 3:
        rocks_options.BUFFER_BYTES = int(sys.argv[3])
        of = rocks_options.rocks_options
        def late(**more):
            options = of(**more)
            options.set_min_write_buffer_number_to_merge(5)
            return options
        from geomq.broker.storage import disk
        disk.rocks_options = late
    from geomq.broker.storage.store import open_store
    from geomq.mqtt.session.message import ApplicationMessage
    from geomq.broker.storage.records import SessionRecord
    from geomq.mqtt.session.changes import DeliveryAdded
    store = open_store(sys.argv[1])
    store.load()
    for number in range(int(sys.argv[2])):
        store.put_session("s", SessionRecord(expiry_s=3600))
        message = ApplicationMessage("t/%d" % number, b"%06d" % number * 500, 1)
        if number % 2:
            store.put_retained(message)
        else:
            store.record([DeliveryAdded("s", number, message, 1, False, (), 0)])
        store.commit()
    store.put_note("k", b"never synced", b"x" * 3000)
    store.write()
    os.kill(os.getpid(), signal.SIGKILL)
    """
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a broker that was killed: 100 events that were acknowledged, in one log."""
    return _written(tmp_path_factory.mktemp("killed"), "100")


@pytest.fixture(scope="module")
def with_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with several logs that are not in tables yet."""
    store = _written(tmp_path_factory.mktemp("logs"), "100", "90000")
    assert len(logs_with_content(str(store))) > 2
    return store


def _written(folder: Path, *arguments: str) -> Path:
    ended = subprocess.run([sys.executable, "-c", WRITER, str(folder / "store"), *arguments], check=False)
    assert ended.returncode == -signal.SIGKILL
    return folder / "store"


def _copy(store: Path, to: Path) -> Path:
    return Path(shutil.copytree(store, to / "store"))


def _flip(path: Path, at: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def _log(store: Path, which: int = -1) -> Path:
    return Path(logs_with_content(str(store))[which])


def _cut(path: Path, to: float) -> None:
    os.truncate(path, int(path.stat().st_size * to))


def _events(store: Path) -> tuple[int, int]:
    """How many are queued and retained."""
    opened = open_store(store)
    try:
        state = opened.load()
        return len(state.sessions["s"].deliveries), len(state.retained)
    finally:
        opened.close()


DAMAGES: dict[str, Damage] = {
    "a bit flipped in the log": lambda store: _flip(_log(store), _log(store).stat().st_size // 2),
    "a bit flipped in its last synced record": lambda store: _flip(_log(store), _log(store).stat().st_size - 5_000),
    "a bit flipped in the type of a record": lambda store: _flip(_log(store), 6, 4),
    "a bit flipped in the length of a record": lambda store: _flip(_log(store), 5, 64),
    "the log cut in the middle": lambda store: _cut(_log(store), 0.5),
    "the log emptied": lambda store: _cut(_log(store), 0),
    "the log deleted": lambda store: _log(store).unlink(),
    "the note of what was synced deleted": lambda store: (store / FILE).unlink(),
    "the note of what was synced overwritten": lambda store: (store / FILE).write_bytes(bytes(32)),
    "CURRENT deleted": lambda store: (store / "CURRENT").unlink(),
    "the manifest deleted": lambda store: next(store.glob("MANIFEST*")).unlink(),
    "the manifest damaged": lambda store: _flip(next(store.glob("MANIFEST*")), 20),
}
DAMAGES_OF_LOGS: dict[str, Damage] = {
    "the first log deleted": lambda store: _log(store, 0).unlink(),
    "a log in the middle deleted": lambda store: _log(store, 1).unlink(),
    "the first log cut": lambda store: _cut(_log(store, 0), 0.5),
    "a bit flipped in the first log": lambda store: _flip(_log(store, 0), 20_000),
    "the last log deleted": lambda store: _log(store).unlink(),
}


def _files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir() if path.name != "IN-USE"}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_store_that_lost_what_was_synced_is_refused_untouched(killed: Path, tmp_path: Path, damage: Damage) -> None:
    store = _copy(killed, tmp_path)
    damage(store)
    before = _files(store)
    with pytest.raises(StoreError) as refused:
        open_store(store)
    assert str(refused.value).startswith(f"store {store} is damaged: ")
    assert f"`geomq store repair {store}`" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert _files(store) == before
    findings = check_store(str(store))
    assert findings.problem is not None
    assert _files(store) == before


@pytest.mark.parametrize("damage", DAMAGES_OF_LOGS.values(), ids=DAMAGES_OF_LOGS.keys())
def test_damage_in_any_of_several_logs_is_refused(with_logs: Path, tmp_path: Path, damage: Damage) -> None:
    store = _copy(with_logs, tmp_path)
    damage(store)
    with pytest.raises(StoreError, match="is damaged"):
        open_store(store)
    repair_store(str(store))
    queued, retained = _events(store)
    assert 50 <= queued + retained < 100


def test_a_killed_broker_has_lost_nothing(killed: Path, with_logs: Path, tmp_path: Path) -> None:
    for number, store in enumerate((killed, with_logs)):
        store = _copy(store, tmp_path / str(number))
        assert check_store(str(store)).problem is None
        assert _events(store) == (50, 50)
        assert check_store(str(store)).problem is None


@pytest.mark.parametrize("tail", [b"", bytes(10_000), b"\1\2\3\4\x40\0\1" + bytes(30)], ids=["torn", "zeros", "half"])
def test_a_torn_tail_after_a_power_failure_opens_without_complaint(killed: Path, tmp_path: Path, tail: bytes) -> None:
    store = _copy(killed, tmp_path)
    log = _log(store)
    log.write_bytes(log.read_bytes()[:-1_000] + tail)  # of the batch that was never synced
    assert _events(store) == (50, 50)


def test_repair_keeps_what_is_before_and_behind_a_flipped_bit(killed: Path, tmp_path: Path) -> None:
    store = _copy(killed, tmp_path)
    _flip(_log(store), _log(store).stat().st_size // 2)
    damaged = _files(store)
    findings = repair_store(str(store))
    assert findings.copy is not None
    assert _files(Path(findings.copy)) == damaged
    queued, retained = _events(store)
    assert 80 <= queued + retained < 100, "only those in the same block of the log are lost"
    assert any("write-ahead log" in line for line in findings.lost)
    assert check_store(str(store)).problem is None


@pytest.mark.parametrize(
    "name", [name for name in DAMAGES if "note" in name or "CURRENT" in name or "manifest" in name]
)
def test_repair_loses_nothing_where_only_what_is_beside_the_data_is_damaged(
    killed: Path, tmp_path: Path, name: str
) -> None:
    store = _copy(killed, tmp_path)
    DAMAGES[name](store)
    repair_store(str(store))
    assert _events(store) == (50, 50)


def test_repair_reads_on_behind_a_damaged_block_of_a_table(killed: Path, tmp_path: Path) -> None:
    store = _copy(killed, tmp_path)
    assert _events(store) == (50, 50)
    table = max(store.glob("*.sst"), key=lambda path: path.stat().st_size)
    for at in (table.stat().st_size // 3, table.stat().st_size // 2):
        _flip(table, at)
    opened = open_store(store)
    with pytest.raises(StoreError, match="geomq store repair"):
        opened.load()
    opened.close()
    findings = repair_store(str(store))
    assert any("block of a table" in line for line in findings.lost)
    assert any("queued messages" in line or "retained message" in line for line in findings.lost)
    queued, retained = _events(store)
    assert 60 <= queued + retained < 100


def test_a_store_from_before_batches_had_numbers_is_taken_over(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    db = Rdict(str(tmp_path / "store"), options)
    db[b"a"] = b"1"
    db.close()
    disk = RocksDisk(str(tmp_path / "store"), sync=True, free_bytes_min=0)
    assert list(disk.items()) == [(b"a", b"1")]
    writes = Writes()
    writes.put(b"b", b"2")
    disk.write(writes)
    disk.sync()
    assert read_synced(str(tmp_path / "store")) == 1
    disk.close()


def test_without_syncing_nothing_is_promised_and_nothing_missed(tmp_path: Path) -> None:
    """What the operating system had not written when the power failed was never acknowledged as safe."""
    store = open_store(tmp_path / "store", sync=False)
    store.load()
    store.put_note("k", b"a", b"1")
    store.commit()
    kept = Path(shutil.copytree(tmp_path / "store", tmp_path / "power"))
    store.close()
    for log in logs_with_content(str(kept)):
        os.truncate(log, 0)
    store = open_store(kept)
    assert store.load().notes == {}
    store.close()


def test_a_torn_note_is_read_from_its_other_half(tmp_path: Path) -> None:
    synced = Synced(str(tmp_path), 5)
    synced.note(6)
    synced.note(7)
    synced.close()
    assert read_synced(str(tmp_path)) == 7
    for torn, expected in ((0, 7), (20, 6)):
        whole = (tmp_path / FILE).read_bytes()
        _flip(tmp_path / FILE, torn)
        assert read_synced(str(tmp_path)) == expected
        (tmp_path / FILE).write_bytes(whole)


def test_a_log_is_walked_to_its_end(killed: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    whole = _log(killed).read_bytes()
    log.write_bytes(whole + b"\1\2\3\4\5\0\x0b")
    assert unknown_record(str(_log(killed))) is None
    assert unknown_record(str(log)) == len(whole)


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for action in (check_store, repair_store):
        with pytest.raises(StoreError, match="another broker uses it"):
            action(str(tmp_path / "store"))
    store.close()
