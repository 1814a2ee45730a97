"""How much memory this process takes, and how much there is for it: that of the machine, or of its cgroup.

Reads what Linux says; elsewhere little or nothing is known.
"""

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4_096
STATM: Final = "/proc/self/statm"


@cache
def _statm() -> int | None:
    """It stays open, so that it can be read when no file can be opened."""
    try:
        return os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def resident_bytes() -> int:
    """What the process occupies now; 0 if the system does not say."""
    file = _statm()
    return 0 if file is None else int(os.pread(file, 256, 0).split()[1]) * PAGE_BYTES


def available_bytes(root: Path = Path("/")) -> int | None:
    """How much there is for this process, all it has already included; None if the system does not say."""
    found = [*_cgroup_limits(root), *_machine()]
    return min(found, default=None)


def give_back() -> None:
    """Return what was freed to the system, as far as the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _machine() -> Iterator[int]:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Of the process's cgroups and of all above them. A container may see its own as the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        here = base / path.lstrip("/")
        for folder in (here, *here.parents):
            if folder.is_relative_to(base):
                yield from _limit(folder / name)


def _limit(file: Path) -> Iterator[int]:
    try:
        yield int(file.read_text())
    except (OSError, ValueError):
        return  # there is none, or it says "max"
