"""The broker's own listener to its trace: hands records to a thread that writes them to files.

The event loop only appends to a list. If the disk does not keep up, records are dropped and counted, never waited for;
if it fails, that is logged and the broker goes on.
"""

import asyncio
import logging
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

from geomq.broker.config.recording import Trace
from geomq.broker.operations.trace_files import BATCH, TraceFiles
from geomq.broker.state.counts import Counts
from geomq.errors import DataError
from geomq.routing.federation.outline import Outline
from geomq.routing.trace.records import TraceRecord

log = logging.getLogger("geomq.broker")

RECORD_BYTES = 512
"""What a record roughly occupies apart from its topic and fence."""
HAND_OVER_S = 0.5


class TraceWriter:
    """A sink. `close` returns when everything it was given is on disk."""

    def __init__(
        self, config: Trace, name: str, counts: Counts, *, start_ms: int, outline: Outline | None = None
    ) -> None:
        assert config.directory is not None
        self._files = TraceFiles(
            Path(config.directory),
            name,
            outline=outline,
            start_ms=start_ms,
            rows_max=config.file_rows_max,
            bytes_max=config.file_bytes_max,
            kept_bytes_max=config.kept_bytes_max,
        )
        self._counts = counts
        self._file_s_max = config.file_s_max
        self._queue_bytes_max = config.queue_bytes_max
        self._queue: SimpleQueue[tuple[list[TraceRecord], int] | None] = SimpleQueue()
        self._batch: list[TraceRecord] = []
        self._batch_bytes = 0
        self._given_bytes = 0
        self._taken_bytes = 0
        """Only the thread changes this one, only the event loop the others: no lock is needed."""
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._write, name="geomq-trace", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def __call__(self, record: TraceRecord) -> None:
        size = RECORD_BYTES + len(record.topic or "") + len(record.fence or "")
        if self._given_bytes - self._taken_bytes + size > self._queue_bytes_max:
            self._counts.trace_dropped += 1
            return
        self._counts.trace_records += 1
        self._given_bytes += size
        self._batch_bytes += size
        self._batch.append(record)
        if len(self._batch) >= BATCH:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(HAND_OVER_S, self._hand_over)

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._batch:
            self._queue.put((self._batch, self._batch_bytes))
            self._batch, self._batch_bytes = [], 0

    def _lose(self, count: int) -> None:
        self._counts.trace_dropped += count

    async def close(self) -> None:
        """Write what is left and end the thread."""
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # In the thread.

    def _write(self) -> None:
        due_s: float | None = None
        while True:
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            try:
                item = self._queue.get(timeout=wait_s)
            except Empty:
                self._attempt([])
                due_s = None
                continue
            if item is None:
                self._attempt([])
                return
            records, size = item
            self._attempt(records)
            self._taken_bytes += size
            if not self._files.rows:
                due_s = None
            elif due_s is None:
                due_s = time.monotonic() + self._file_s_max

    def _attempt(self, records: list[TraceRecord]) -> None:
        """Add records, or with none finish the file."""
        waiting = self._files.rows + len(records)
        try:
            if records:
                self._files.add(records)
            else:
                self._files.flush()
        except DataError as error:
            self._loop.call_soon_threadsafe(self._lose, waiting - self._files.rows)
            log.error("failed to write a trace file", extra={"reason": str(error)})
