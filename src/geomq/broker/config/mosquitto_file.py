"""Reads a mosquitto.conf and the files that it includes as options, each with the line it stands on. Judges none."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from geomq.errors import UsageError

FILE_BYTES_MAX = 1_048_576
FILES_MAX = 200


class Option(NamedTuple):
    """One line that says something; `where` is its file and number."""

    where: str
    key: str
    value: str


def read_options(path: Path) -> Iterator[Option]:
    """Every option, those of included files in place of the line that includes them."""
    return _options(path, depth=0)


def _options(path: Path, *, depth: int) -> Iterator[Option]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot read it: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path}: larger than {FILE_BYTES_MAX} bytes, not a mosquitto.conf")
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        key, _, value = line.strip().partition(" ")
        value = value.strip()
        if not key or key.startswith("#"):
            continue
        if key == "include_dir" and depth == 0:
            for included in _included(path.parent / value):
                yield from _options(included, depth=1)
        else:
            yield Option(f"{path.name}:{number}", key, value)


def _included(folder: Path) -> list[Path]:
    """The .conf files in Mosquitto's order: upper case before lower case of the same letter."""
    try:
        found = [path for path in folder.iterdir() if path.suffix == ".conf"]
    except (OSError, ValueError) as error:  # ValueError for a path that cannot be
        raise UsageError(f"{folder}: cannot read it: {getattr(error, 'strerror', error)}") from None
    return sorted(found, key=lambda path: (path.name.lower(), path.name))[:FILES_MAX]
