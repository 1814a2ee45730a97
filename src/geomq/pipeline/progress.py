"""A progress bar for Spark jobs, on a terminal only.

Owns the thread that asks Spark how far it is. Silent in a pipe.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator

from pyspark.sql import SparkSession

_INTERVAL_S = 0.25


@contextlib.contextmanager
def spark_progress(spark: SparkSession, title: str) -> Iterator[None]:
    """Show the tasks of all stages as one bar while the body runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    done = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def watch() -> None:
            seen: dict[int, tuple[int, int]] = {}
            while not done.wait(_INTERVAL_S):
                with contextlib.suppress(Exception):
                    tracker = spark.sparkContext.statusTracker()
                    for stage in tracker.getActiveStageIds():
                        info = tracker.getStageInfo(stage)
                        if info is not None:
                            seen[stage] = (info.numCompletedTasks, info.numTasks)
                    latest = max(seen, default=-1)
                    finished = sum(total if stage < latest else part for stage, (part, total) in seen.items())
                    bar.update(task, completed=finished, total=sum(total for _, total in seen.values()) or None)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
