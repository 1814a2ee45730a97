"""Files that a command is to write: looked at before the long work begins, so that a wrong name costs no time.

What is there already is replaced only if the person says so.
"""

from collections.abc import Iterable
from pathlib import Path

import click

from geomq.errors import DataError, UsageError

overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing files of --out.")


def check_file(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that is there or cannot be written."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name a file")
    check_files(path.parent, [path.name], overwrite=overwrite)


def check_files(directory: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Refuse a directory that has one of these files or cannot be written."""
    from geomq.workload.files import check_writable

    check_writable(directory)
    there = next((directory / name for name in names if (directory / name).exists()), None)
    if there is not None and not overwrite:
        raise UsageError(f"{there} already exists; choose another --out or give --overwrite")


def write_text(path: Path, text: str) -> None:
    """Write a file, and make its directory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
