"""How far Spark is, as a line on a terminal.

Owns the thread that asks Spark. Silent in a pipe.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator

from pyspark.sql import SparkSession

_INTERVAL_S = 0.25
_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def spark_progress(spark: SparkSession, title: str) -> Iterator[None]:
    """Show how many tasks of all stages are done while the body runs."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def watch() -> None:
        seen: dict[int, tuple[int, int]] = {}
        while not done.wait(_INTERVAL_S):
            with contextlib.suppress(Exception):
                tracker = spark.sparkContext.statusTracker()
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        seen[stage] = (info.numCompletedTasks, info.numTasks)
                _say(f"{title}: {in_words(seen)}")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        _say("")


def in_words(seen: dict[int, tuple[int, int]]) -> str:
    """The tasks of all stages seen so far; a stage is over when a later one has begun."""
    latest = max(seen, default=-1)
    finished = sum(total if stage < latest else part for stage, (part, total) in seen.items())
    return f"{finished:,}/{sum(total for _, total in seen.values()):,} tasks"


def _say(text: str) -> None:
    sys.stderr.write(_CLEAR + text)
    sys.stderr.flush()
