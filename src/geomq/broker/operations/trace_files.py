"""Trace records in Parquet files: whole or not there, rotated, the oldest removed.

Many brokers may write into one directory, because a file's name says whose it is. What has not filled a file yet is in
memory only. Writes wherever it is called; the broker calls it from a thread of its own.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from geomq.errors import ConfigError, DataError
from geomq.extras import missing
from geomq.routing.federation.outline import OUTLINE_KEY, Outline, outline_bytes
from geomq.routing.trace.records import COLUMNS, TraceRecord

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1_000
"""Records turned into columns at once; more would hold up other threads."""

_EVENT_ID = TraceRecord._fields.index("event_id")


class TraceFiles:
    """The files of one broker (or one simulation) named `name`; `start_ms` tells its runs apart.

    Each file carries the outline of the federation, so that it can be drawn on a map.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        outline: Outline | None = None,
        start_ms: int = 0,
        rows_max: int = 200_000,
        bytes_max: int = 67_108_864,
        kept_bytes_max: int | None = None,
    ) -> None:
        self._schema = _schema(outline)
        self._directory = directory
        self._start = f"trace.{name}.{start_ms:013d}."
        self._mine = re.compile(rf"trace\.{re.escape(name)}\.\d{{13,}}\.\d{{6,}}\.parquet")
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._kept_bytes_max = kept_bytes_max
        self._number = 0
        self._waiting: list[TraceRecord] = []
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self._bytes = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for left in directory.glob(".trace.*.partial"):
                if self._mine.fullmatch(left.name[1 : -len(".partial")]):
                    left.unlink(missing_ok=True)
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise ConfigError(f"cannot write traces to {directory}: {error.strerror}") from None

    def take(self, record: TraceRecord) -> None:
        """One record more: a sink."""
        self._waiting.append(record)
        if len(self._waiting) >= BATCH:
            waiting, self._waiting = self._waiting, []
            self.add(waiting)

    def add(self, records: Sequence[TraceRecord]) -> None:
        """Take records, and write a file if they fill one. Raises DataError if that fails; its records are gone."""
        for start in range(0, len(records), BATCH):
            batch = self._columns(records[start : start + BATCH])
            self._batches.append(batch)
            self.rows += batch.num_rows
            self._bytes += batch.nbytes
            if self.rows >= self._rows_max or self._bytes >= self._bytes_max:
                self.flush()

    def flush(self) -> None:
        """Write what is there as a file, even if it is a small one."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self.add(waiting)
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self.rows, self._bytes = [], 0, 0
        self._number += 1
        path = self._directory / f"{self._start}{self._number:06d}.parquet"
        partial = path.with_name(f".{path.name}.partial")
        try:
            pq.write_table(table, partial, compression="zstd")
            os.replace(partial, path)
            self._prune(path)
        except (OSError, pa.ArrowException) as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise DataError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None

    def _columns(self, records: Sequence[TraceRecord]) -> "pa.RecordBatch":
        import pyarrow as pa

        columns = [list(column) for column in zip(*records, strict=True)]
        columns[_EVENT_ID] = [None if event_id is None else str(event_id) for event_id in columns[_EVENT_ID]]
        arrays = []
        for values, field in zip(columns, self._schema, strict=True):
            try:
                arrays.append(pa.array(values, field.type))
            except UnicodeEncodeError:
                arrays.append(pa.array([_clean(value) for value in values], field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _prune(self, newest: Path) -> None:
        if self._kept_bytes_max is None:
            return
        with os.scandir(self._directory) as entries:
            mine = sorted((entry.name, entry.stat().st_size) for entry in entries if self._mine.fullmatch(entry.name))
        total = sum(size for _, size in mine)
        for name, size in mine:
            if total <= self._kept_bytes_max or name == newest.name:
                return
            (self._directory / name).unlink(missing_ok=True)
            total -= size


def _schema(outline: Outline | None) -> "pa.Schema":
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise missing("pyarrow") from None
    pa.array([""])  # the first array is slow, because it looks for pandas: better now than under load
    metadata = None if outline is None else {OUTLINE_KEY: outline_bytes(outline)}
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind, _ in COLUMNS], metadata)


def _clean(value: object) -> object:
    """Text as UTF-8 can carry it."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
