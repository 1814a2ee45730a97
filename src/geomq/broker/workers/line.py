"""The way to one worker: its process, and the socket between.

A worker ends when its socket is closed, having sent what it was given. No process outlives the broker that started it:
whatever becomes of the broker, the system closes the socket.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol

from geomq.broker.workers.pipe import Pipe


class Line(Protocol):
    """The broker's end. `exit_code` is None as long as the worker runs."""

    @property
    def waiting_bytes(self) -> int:
        """What is written and not yet on its way."""

    @property
    def exit_code(self) -> int | None: ...

    def read_into(self, space: memoryview) -> int:
        """How many bytes were there; 0 if there are none now, or never again."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def write(self, data: bytes, accepted: tuple[Any, ...]) -> None:
        """Send bytes, and connections that are the worker's from now on."""

    def wait_until_below(self, size: int, timeout_s: float) -> bool:
        """Do nothing else until less than this waits; whether it does in time."""

    def close(self) -> None:
        """Let the worker end."""

    def kill(self) -> None:
        """End it, now."""


class OpenLine(Protocol):
    """Starts a worker. `readable` is called when there is something to read, `lost` once, when it ended by itself."""

    def __call__(self, readable: Callable[[], None], lost: Callable[[], None]) -> Line: ...


class ProcessLine:
    """To a process of this machine. OSError if it cannot be started, or cannot be given connections."""

    def __init__(self, readable: Callable[[], None], lost: Callable[[], None], *, clock_ns: Callable[[], int]) -> None:
        if not hasattr(socket, "SCM_RIGHTS"):
            raise OSError("this system passes no connections between processes")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "geomq.broker.workers.process", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                )
        except OSError:
            ours.close()
            raise
        self._clock_ns = clock_ns
        self._pipe = pipe = Pipe(ours, asyncio.get_running_loop(), readable=readable, lost=lost)
        self.read_into: Callable[[memoryview], int] = pipe.read_into
        self.write: Callable[[bytes, tuple[Any, ...]], None] = pipe.write
        self.pause: Callable[[], None] = pipe.pause
        self.resume: Callable[[], None] = pipe.resume

    @property
    def waiting_bytes(self) -> int:
        return self._pipe.waiting_bytes

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def wait_until_below(self, size: int, timeout_s: float) -> bool:
        return self._pipe.wait_until_below(size, timeout_s, lambda: self._clock_ns() / 1e9)

    def close(self) -> None:
        self._pipe.close()

    def kill(self) -> None:
        self._pipe.close()
        self.process.kill()
        self.process.wait()
