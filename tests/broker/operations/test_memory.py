"""Freed memory is kept where the C library can be asked to; loading is not held up by the garbage collector."""

import gc
import platform
import subprocess
import sys

import pytest

from geomq.broker.operations.memory import collection_paused

PROGRAM = """
import resource
from geomq.broker.operations.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytes([1]) * 500_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

understood = keep_freed_memory()
faults()
print(understood, faults())
"""


def test_what_comes_and_goes_is_not_mapped_anew_each_time() -> None:
    """A hundred times half a megabyte are more than ten thousand pages."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    understood, faults = run.stdout.split()
    if platform.libc_ver()[0] == "glibc":
        assert understood == "True"
        assert int(faults) < 1_000
    else:
        assert understood in ("True", "False")


def collections_while_many_objects_are_made() -> int:
    seen = []

    def note(phase: str, _: object) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(100_000)]
    finally:
        gc.callbacks.remove(note)
    return len(seen) if kept else -1


def test_the_collector_waits_while_a_broker_loads() -> None:
    assert collections_while_many_objects_are_made()
    with collection_paused():
        assert not collections_while_many_objects_are_made()
    assert gc.isenabled()


def test_the_collector_goes_on_after_a_failure_and_stays_off_where_it_was_off() -> None:
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
