"""Compiled kernels are kept on disk, and never taken for those of other sources."""

import re
import resource
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

from geomq.workload import compiled as compiling
from geomq.workload.compiled import KEPT, PREFIX, cache_directory, compiled, source_hash


def double(numbers: np.ndarray) -> float:
    return float(numbers.sum() * 2)


def test_a_kernel_computes_what_the_function_does() -> None:
    numbers = np.arange(5.0)
    assert compiled(double)(numbers) == double(numbers) == 20.0


def test_what_is_kept_is_named_after_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_hash()
    assert cache_directory() is not None
    assert str(cache_directory()).endswith(PREFIX + before)
    monkeypatch.setattr(compiling, "OTHER_SOURCES", compiling.OTHER_SOURCES[1:])
    assert source_hash() != before


def test_all_modules_that_kernels_take_something_from_are_watched() -> None:
    root = Path(compiling.__file__).parent.parent
    kernels = [path for path in root.rglob("*.py") if "@compiled" in path.read_text()]
    assert len(kernels) > 5
    assert {f"geomq.{path.relative_to(root).parts[0]}" for path in kernels} == set(compiling.PACKAGES)
    for path in kernels:
        taken = re.findall(r"^from (geomq\.(?:geo|mqtt|routing)[\w.]*) import", path.read_text(), re.MULTILINE)
        assert set(taken) <= {*compiling.OTHER_SOURCES, "geomq.geo"}, path


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert compiling._made(tmp_path / "file") is None


def test_only_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(KEPT + 3):
        monkeypatch.setattr(compiling, "source_hash", lambda number=number: f"{number:02}")
        assert compiling._made(tmp_path) == tmp_path / f"{PREFIX}{number:02}"
    assert len(list(tmp_path.iterdir())) == KEPT


def test_a_kernel_that_cannot_be_kept_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "cache_directory", lambda: tmp_path)
    kernel = compiled(double)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        assert kernel(np.ones(4)) == 8.0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.rglob("*.nbc"))


def test_kernels_run_without_any_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "cache_directory", lambda: None)
    assert compiled(double)(np.ones(3)) == 6.0


TWICE = """
import sys
from pathlib import Path
from geomq.workload import compiled as compiling

compiling.cache_directory = lambda: Path(sys.argv[1])

@compiling.compiled
def inner(number):
    return number + 1

@compiling.compiled
def outer(number):
    total = 0
    for each in range(number):
        total += inner(each)
    return total

print("ready", flush=True)
sys.stdin.readline()
assert outer(4) == 10
print(sum(outer.stats.cache_misses.values()))
"""


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    command = [sys.executable, str(tmp_path / "twice.py"), str(tmp_path)]
    running = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(3)]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(process.communicate(timeout=120)[0] for process in running) == ["0\n", "0\n", "1\n"]
