"""Tasks in as many processes of this machine as it has cores. Ctrl-C ends them at once, without tracebacks."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """The results in the order of the tasks. One task alone runs in this process, where a debugger can follow it."""
    if len(tasks) == 1:
        yield function(tasks[0])
        return
    with ProcessPoolExecutor(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield from pool.map(function, tasks)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise
