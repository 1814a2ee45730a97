"""Files of --out: refused before the work begins if they are there or cannot be."""

import os
from pathlib import Path

import pytest

from geomq.cli.output import check_file, check_files, write_text
from geomq.errors import DataError, UsageError


def test_a_file_that_is_there_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    check_file(file, overwrite=False)
    file.write_text("mine")
    with pytest.raises(UsageError, match=r"a.md already exists; choose another --out or give --overwrite"):
        check_file(file, overwrite=False)
    check_file(file, overwrite=True)
    assert file.read_text() == "mine"


def test_other_files_of_a_directory_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("mine")
    check_files(tmp_path, ["a.md", "b.md"], overwrite=False)
    (tmp_path / "b.md").write_text("mine")
    with pytest.raises(UsageError, match=r"b.md already exists"):
        check_files(tmp_path, ["a.md", "b.md"], overwrite=False)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory; name a file"):
        check_file(tmp_path, overwrite=True)
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError, match=r"cannot write .*file is not a directory"):
            check_files(directory, ["a.md"], overwrite=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="Permission denied"):
        check_file(tmp_path / "new" / "a.md", overwrite=False)


def test_a_missing_directory_is_made_when_the_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "deep" / "a.md"
    check_file(file, overwrite=False)
    assert not (tmp_path / "new").exists()
    write_text(file, "text")
    assert file.read_text() == "text"
    with pytest.raises(DataError, match="cannot write"):
        write_text(file / "below", "text")
