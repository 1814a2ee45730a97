"""Threads that compute when the test says so."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class GatedThreads(Executor):
    """Keeps what it is given; `run_next` computes the first of it."""

    def __init__(self) -> None:
        self.given: deque[Callable[[], Any]] = deque()
        self.computed = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given.append(lambda: fn(*args, **kwargs))
        return Future()

    def run_next(self) -> None:
        self.given.popleft()()
        self.computed += 1
