"""What the system says of the memory of this process."""

import subprocess
import sys
from pathlib import Path

import pytest

from geomq.broker.process_memory import available_bytes

LINUX = Path("/proc/self/statm").exists()


MEASURED = """
from geomq.broker.process_memory import give_back, resident_bytes
before = resident_bytes()
block = bytearray(b"1") * 50_000_000
print(resident_bytes() - before)
pieces = [bytes(1_000) for _ in range(50_000)]
del block, pieces
give_back()
print(resident_bytes() - before)
"""
"""In a process of its own: in one that has done much, what is used may be what was free."""


@pytest.mark.skipif(not LINUX, reason="only Linux says")
def test_what_is_occupied_grows_with_what_is_used_and_goes_back() -> None:
    told = subprocess.run([sys.executable, "-c", MEASURED], check=True, capture_output=True, text=True).stdout
    used, left = map(int, told.split())
    assert 45_000_000 < used < 60_000_000
    assert left < 20_000_000


def _machine(root: Path, groups: str, **limits: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, limit in limits.items():
        file = root / name.replace("__", "/").replace("DOT", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)
    return root


def test_the_nearest_limit_of_a_control_group_or_one_above_counts(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        "0::/system/geomq\n",
        sys__fs__cgroup__system__geomq__memoryDOTmax="max\n",
        sys__fs__cgroup__system__memoryDOTmax="123456789\n",
        sys__fs__cgroup__memoryDOTmax="987654321\n",
    )
    assert available_bytes(root) == 123_456_789


def test_a_container_that_sees_its_group_as_the_root_is_understood(tmp_path: Path) -> None:
    root = _machine(tmp_path, "0::/\n", sys__fs__cgroup__memoryDOTmax="5000000\n")
    assert available_bytes(root) == 5_000_000


def test_groups_of_the_first_version_are_understood(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        "5:cpu,cpuacct:/x\n4:memory:/docker/1\n",
        sys__fs__cgroup__memory__docker__1__memoryDOTlimit_in_bytes="7000000\n",
    )
    assert available_bytes(root) == 7_000_000


def test_without_control_groups_it_is_the_machine_s(tmp_path: Path) -> None:
    available = available_bytes(tmp_path)
    assert available is None or available > 100_000_000
