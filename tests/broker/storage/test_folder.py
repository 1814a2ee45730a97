"""One broker at a time has a folder, and one that held something cannot pass for a new one."""

from pathlib import Path

import pytest

from geomq.broker.storage.errors import StoreError
from geomq.broker.storage.folder import FolderLock, check_folder
from geomq.broker.storage.synced import FILE, Synced


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    with pytest.raises(StoreError, match="another broker uses it"):
        FolderLock(str(tmp_path))
    lock.close()
    FolderLock(str(tmp_path)).close()


def test_a_new_folder_is_as_good_as_one_that_was_never_finished(tmp_path: Path) -> None:
    for leftover in ("LOG", "MANIFEST-000001", "000004.log"):
        (tmp_path / leftover).touch()
        check_folder(str(tmp_path))
    Synced(str(tmp_path), 0).close()
    check_folder(str(tmp_path))
    assert (tmp_path / FILE).exists()


@pytest.mark.parametrize("held", ["000007.sst", "000004.log", FILE])
def test_a_folder_that_held_something_is_not_new_without_current(tmp_path: Path, held: str) -> None:
    (tmp_path / held).write_bytes(b"\0\0\0\0\5\0\1data")
    with pytest.raises(StoreError, match="CURRENT is missing"):
        check_folder(str(tmp_path))
