"""Compiling kernels: the one place that knows numba.

Compiled code is kept on disk and used again by every process. A kernel takes in functions and constants of other
modules, but numba only notices changes of the kernel's own file; so what is kept belongs to the exact sources of all
modules a kernel may take something from, and whatever is kept of other sources is never looked at. Of processes that
need a kernel at the same time one compiles it; the others wait and take what was kept.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core.compiler_lock import global_compiler_lock

PACKAGES = ("geomq.reproduction", "geomq.workload")
"""Where kernels are."""
OTHER_SOURCES = (
    "geomq.geo.sphere",
    "geomq.routing.strategies.adaptive",
    "geomq.routing.strategies.digests.digest",
    "geomq.routing.strategies.digests.outlook",
    "geomq.routing.strategies.digests.strategy",
    "geomq.routing.strategies.digests.units",
    "geomq.routing.strategies.georendezvous",
    "geomq.routing.strategies.groups.greedy",
)
"""Modules elsewhere whose constants kernels take in."""
PREFIX = "kernels-"
KEPT = 4

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function when it is first called."""
    directory = cache_directory()
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(directory or "")
    try:
        dispatcher: Any = njit(cache=directory is not None, nogil=True)(function)
    finally:
        settings.CACHE_DIR = before
    if directory is not None:
        _bear_a_full_disk(dispatcher._cache)
        _compile_in_turn(dispatcher, directory / f"{function.__module__}.{function.__qualname__}.lock")
    return cast(Function, dispatcher)


def _bear_a_full_disk(kept: Any) -> None:
    """What cannot be kept is compiled again next time."""
    save = kept.save_overload

    def save_if_possible(signature: Any, data: Any) -> None:
        with suppress(OSError):
            save(signature, data)

    kept.save_overload = save_if_possible


def _compile_in_turn(dispatcher: Any, lock: Path) -> None:
    """Threads take turns by numba's own lock, processes by a file. In its turn a kernel compiles those that it calls,
    so files are locked in the order of calls, never in a ring."""
    compile_or_load, turns = dispatcher.compile, 0

    def in_turn(signature: Any) -> Any:
        nonlocal turns
        with global_compiler_lock, nullcontext() if turns else _locked(lock):
            turns += 1
            try:
                return compile_or_load(signature)
            finally:
                turns -= 1

    dispatcher.compile = in_turn


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Where files cannot be locked, every process compiles for itself."""
    try:
        import fcntl

        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except (ImportError, OSError):
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@cache
def cache_directory() -> Path | None:
    """Where compiled code of these sources is kept: beside them or else in the user's cache; None if neither works."""
    return next(filter(None, (_made(base) for base in (Path(__file__).parent / "__pycache__", user_cache()))), None)


def user_cache() -> Path:
    return Path("~/.cache/geomq").expanduser()


def _made(base: Path) -> Path | None:
    """The directory for these sources in `base`; when it is new, those longest there are removed."""
    directory = base / f"{PREFIX}{source_hash()}"
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            for old in sorted(base.glob(f"{PREFIX}*"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
                rmtree(old, ignore_errors=True)
    except OSError:
        return None
    return directory


def source_hash() -> str:
    """Stands for the text of every module a kernel may take something from."""
    sources = {name: source for package in PACKAGES for name, source in _modules(files(package), package)}
    for module in OTHER_SOURCES:
        package, _, name = module.rpartition(".")
        sources[module] = files(package).joinpath(f"{name}.py").read_bytes()
    digest = hashlib.sha256()
    for name, source in sorted(sources.items()):
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:16]


def _modules(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _modules(entry, f"{name}/{entry.name}")
