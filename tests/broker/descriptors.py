"""A process that may open no more files."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Let this process open only so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(left + 1)]  # between others that are open
    for each in free:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def no_descriptor_left() -> contextlib.AbstractContextManager[None]:
    return descriptors(0)
