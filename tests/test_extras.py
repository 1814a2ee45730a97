"""Which extra brings what, and the command that installs it here."""

import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from geomq.errors import MissingModuleError
from geomq.extras import EXTRAS, extra_of, install_command, missing, need

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def names(lines: list[str]) -> set[str]:
    return {line.partition(">")[0] for line in lines}


def test_an_extra_brings_what_the_package_says() -> None:
    optional = PROJECT["optional-dependencies"]
    assert names(optional["data"]) == set(EXTRAS["data"])
    assert names(optional["spark"]) == {"geomq[data]", *EXTRAS["spark"]}
    assert not names(PROJECT["dependencies"]) & {package for packages in EXTRAS.values() for package in packages}


def test_what_is_there_is_not_refused_and_what_is_not_is(monkeypatch: pytest.MonkeyPatch) -> None:
    need("pyarrow")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(
        MissingModuleError, match=r"^this needs numba, which is not installed; run: \S+python\S* -m pip"
    ):
        need("numba")
    assert [extra_of(package) for package in ("pyspark", "pyarrow", "numpy")] == ["spark", "data", None]


class Installed:
    """A distribution that came from somewhere."""

    def __init__(self, origin: dict[str, object] | None) -> None:
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (None, "'geomq[data]'"),
        ({"url": "file:///some/clone", "dir_info": {"editable": True}}, "-e '/some/clone[data]'"),
        ({"url": "file:///a%20b/clone", "dir_info": {}}, "'/a b/clone[data]'"),
        ({"url": "file:///geomq-0.1.0-py3-none-any.whl", "archive_info": {}}, "'/geomq-0.1.0-py3-none-any.whl[data]'"),
        ({"url": "https://elsewhere.example/geomq.whl", "archive_info": {}}, "'geomq[data]'"),
    ],
)
def test_the_command_installs_from_where_geomq_came(
    origin: dict[str, object] | None, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(origin))
    assert install_command("data") == f"/venv/bin/python -m pip install {what}"
    assert str(missing("pyarrow")).endswith(what)


def test_what_is_not_installed_at_all_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> Installed:
        raise metadata.PackageNotFoundError("geomq")

    monkeypatch.setattr(metadata, "distribution", nothing)
    assert install_command("spark").endswith("'geomq[spark]'")
