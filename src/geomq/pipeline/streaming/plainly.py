"""Our own errors leave Spark's Python processes as one line, without a traceback.

An environment variable controls whether Spark prints tracebacks, and Spark ends the process after printing: no other
errors lose theirs.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from geomq.errors import GeomqError

P = ParamSpec("P")
T = TypeVar("T")


def plainly(method: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls in a process of its own."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except GeomqError:
            _hide_the_way()
            raise

    return called


def yielded_plainly(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for what Spark iterates over."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except GeomqError:
            _hide_the_way()
            raise

    return called


def _hide_the_way() -> None:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
