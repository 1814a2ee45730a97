"""A disk whose power can fail: an ext4 file system in a file of its own, shut down as the kernel's own tests do it.

`fail` is the ioctl EXT4_IOC_SHUTDOWN without a flush of the journal: from then on nothing reaches the file, so that it
holds what had been handed to the device and nothing else, and whoever writes or syncs gets an error. `restore` mounts
it again, which replays the journal as after a crash. What this does not show is a device that lies about its cache.
Needs Linux, root and a loop device; knows nothing of brokers.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from geomq.errors import UsageError

SHUTDOWN: Final = 0x8004587D
"""_IOR('X', 125, __u32)"""
WITHOUT_FLUSH: Final = struct.pack("I", 2)
BYTES: Final = 2 << 30
"""Of the file, which has holes where nothing was written."""
_TOOLS: Final = ("mkfs.ext4", "mount", "umount")


def why_not() -> str | None:
    """Why there can be no such disk here."""
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root, to mount a file system"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {missing[0]}"
    return None if Path("/dev/loop-control").exists() else "needs loop devices"


class FailingDisk:
    """A context in which `path` is a folder on such a disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self._image = folder / "disk.img"
        self.failures = 0

    def __enter__(self) -> Self:
        problem = why_not()
        if problem is not None:
            raise UsageError(f"a disk whose power can fail {problem}")
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", "--lazy", str(self.path))  # whatever is still open there
        self._image.unlink()

    def fail(self) -> None:
        """The power fails: what has not reached the device is gone."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, WITHOUT_FLUSH)
        finally:
            os.close(folder)
        self.failures += 1

    def restore(self) -> None:
        """The power is back. Nobody may have a file open."""
        self._unmount()
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def _unmount(self) -> None:
        _run("umount", str(self.path))


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
