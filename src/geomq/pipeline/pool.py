"""Tasks in as many processes of this machine as it has cores. Ctrl-C ends them at once, without tracebacks."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
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
            with _interrupted_afterwards():
                futures = [pool.submit(function, task) for task in tasks]
            for future in futures:
                yield future.result()
        except KeyboardInterrupt:
            for worker in active_children():
                worker.terminate()
            pool.shutdown(cancel_futures=True)  # waits for the pool's thread, which else may stumble over Python's end
            raise


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Let Ctrl-C take effect after the body: in its midst there may be workers that nobody knows of yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
