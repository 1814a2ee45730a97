"""The modules that strategies of the user's own need, as a zip file for executors.

Owns which files those are: each module or package that was loaded from the directory in which the strategy's own was
found. A strategy from an installed package takes that package along, whatever else stands beside it. What is imported
only later, inside a function, is not found this way.
"""

import hashlib
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from geomq.routing.strategies.registry import strategy_class

INSTALLED = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib", "platstdlib")}


def own_modules_zip(directory: Path, strategies: Iterable[str]) -> Path | None:
    """A zip file, named by its content, in the directory; none if no strategy is the user's own."""
    tops: dict[str, Path] = {}
    for name in dict.fromkeys(strategies):
        if ":" in name:
            strategy_class(name)  # loads what it needs
            tops |= _beside(name.partition(":")[0].partition(".")[0])
    tops.pop("geomq", None)
    if not tops:
        return None
    files = {inside: path for top in tops.values() for inside, path in _files(top)}
    digest = hashlib.sha256()
    for inside in sorted(files):
        digest.update(f"{inside}\0{files[inside].stat().st_size}\0".encode() + files[inside].read_bytes())
    made = directory / f"geomq-own-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside in sorted(files):
            archive.write(files[inside], inside)
    return made


def _beside(top: str) -> dict[str, Path]:
    """The top-level modules and packages loaded from the directory in which this one is, itself among them."""
    own = _place(top)
    if own is None:
        return {}
    if own.parent in INSTALLED:
        return {top: own}
    loaded = dict.fromkeys(name.partition(".")[0] for name in list(sys.modules))
    places = {name: _place(name) for name in loaded}
    return {name: place for name, place in places.items() if place is not None and place.parent == own.parent}


def _place(top: str) -> Path | None:
    """The file or directory of a loaded top-level module."""
    module = sys.modules.get(top)
    folders = [Path(each).resolve() for each in getattr(module, "__path__", ())]
    file = getattr(module, "__file__", None)
    if folders:
        return folders[0]
    return Path(file).resolve() if file and file.endswith(".py") else None


def _files(top: Path) -> Iterator[tuple[str, Path]]:
    """What belongs to a module, with its name in the zip file."""
    if top.is_file():
        yield top.name, top
        return
    for path in top.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield (Path(top.name) / path.relative_to(top)).as_posix(), path
