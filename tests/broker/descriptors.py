"""A process that may open no more files."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Let this process open only so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.open(os.devnull, os.O_RDONLY)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def no_descriptor_left() -> contextlib.AbstractContextManager[None]:
    return descriptors(0)
