"""Figures as files."""

from pathlib import Path

import pytest

from geomq.errors import DataError
from geomq.reproduction.figures import new_figure, save_figure


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_the_same_figure_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    for directory in ("first", "second"):
        figure, (left, right) = new_figure(2)
        left.plot([1, 2], [3, 4])
        right.plot([1, 2], [4, 3])
        assert save_figure(figure, tmp_path / directory / name).exists()
    assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    figure, _ = new_figure()
    with pytest.raises(DataError, match=r"cannot write .*file/a\.svg"):
        save_figure(figure, tmp_path / "file" / "a.svg")
