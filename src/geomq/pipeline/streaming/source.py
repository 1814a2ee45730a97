"""Events into Spark: `readStream` from brokers, `read` from an archive.

The stream reader lives on the driver with one inlet a session; offsets are the numbers of the spools, so a batch that
is repeated after a crash holds exactly the same events. Executors read the spools. Spark's commit, or its coming back
for more, tells the inlets what it is done with.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from geomq.errors import DataError
from geomq.pipeline.streaming.connection import CONNECT_TIMEOUT_S
from geomq.pipeline.streaming.decode import Columns, Origin, packets_of
from geomq.pipeline.streaming.inlet import Inlet
from geomq.pipeline.streaming.options import SourceOptions
from geomq.pipeline.streaming.plainly import plainly, yielded_plainly
from geomq.pipeline.streaming.spool import Piece, read_chunk

BATCH_ROWS = 10_000
SETTLE_PATIENCE_S = 120.0

Offset = dict[str, int]


@dataclass
class SpoolSlice(InputPartition):
    """Some packets of one spool."""

    directory: str
    origin: Origin
    pieces: list[Piece]


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made several times by Spark; only the one that is asked for offsets connects to the brokers."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._inlets: list[Inlet] = []
        self._started = False
        self._until: Offset | None = None

    # On the driver.

    @plainly
    def initialOffset(self) -> Offset:  # noqa: N802
        return {inlet.key: inlet.spool.begin for inlet in self._open()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.events_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @plainly
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch may go. Spark is done with everything before `start`, or it would not ask."""
        self.commit(start)
        self._start()
        if self._until is not None and not all(inlet.settled for inlet in self._inlets):
            self._until = self._settle()
        ends = {inlet.key: inlet.spool.end for inlet in self._inlets} if self._until is None else self._until
        begins = {inlet.key: max(start.get(inlet.key, 0), inlet.spool.begin) for inlet in self._inlets}
        return start | _limited(begins, ends, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return {inlet.key: inlet.spool.end for inlet in self._inlets} or None

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is available now: what the brokers held for our sessions when we came."""
        self._start()
        self._until = self._settle()

    @plainly
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        found: list[InputPartition] = []
        for inlet in self._open():
            if inlet.key not in end:
                continue
            begin = start.get(inlet.key, 0)
            pieces = inlet.spool.pieces(begin, end[inlet.key])
            self._check_there(inlet, start.get(inlet.key), end[inlet.key], pieces)
            name = f"{inlet.client_id}@{inlet.address}"
            origin = Origin(str(inlet.address), name, self._options.login.version, inlet.tells)
            shares = _shares(pieces, self._options.partition_events_max)
            found += [SpoolSlice(str(inlet.directory), origin, share) for share in shares]
        return found

    @plainly
    def commit(self, end: Offset) -> None:
        for inlet in self._open():
            if inlet.key in end:
                inlet.commit(end[inlet.key])

    def stop(self) -> None:
        for inlet in self._inlets:
            inlet.request_stop()
        for inlet in self._inlets:
            inlet.stop()
        self._inlets = []

    def _open(self) -> list[Inlet]:
        if not self._inlets:
            options = self._options
            self._inlets = [
                Inlet(options, address, member) for address in options.brokers for member in range(options.sessions)
            ]
        return self._inlets

    def _start(self) -> None:
        """Connect, and say at once if that fails or has failed since."""
        if not self._started:
            self._started = True
            for inlet in self._open():
                _ = inlet.spool
                inlet.start()
            deadline = time.monotonic() + 2 * CONNECT_TIMEOUT_S
            for inlet in self._inlets:
                while not inlet.connected.wait(0.05) and inlet.trouble is None and time.monotonic() < deadline:
                    pass
        for inlet in self._inlets:
            if inlet.trouble is not None:
                raise inlet.trouble
            if inlet.lost and self._options.fail_on_data_loss:
                raise DataError(
                    f"broker {inlet.address} has lost the session {inlet.client_id}: events may be lost;"
                    " set option failOnDataLoss to false to continue"
                )

    def _settle(self) -> Offset:
        """The ends once everything is here, or as much as there can be before Spark commits some of it."""
        deadline = time.monotonic() + SETTLE_PATIENCE_S
        while time.monotonic() < deadline:
            if all(inlet.settled or inlet.window_full for inlet in self._inlets):
                break
            time.sleep(0.02)
        return {inlet.key: inlet.spool.end for inlet in self._inlets}

    def _check_there(self, inlet: Inlet, start: int | None, end: int, pieces: list[Piece]) -> None:
        """All numbers of a planned batch must be in the spool, unless the user takes what there is.

        A spool that was begun anew starts with a higher number, so a batch over the gap is noticed here too.
        """
        if not self._options.fail_on_data_loss or start is None or start >= end:
            return
        if sum(piece.take for piece in pieces) != end - start:
            raise DataError(
                f"the spool {inlet.directory} lacks events of the checkpoint; if they are lost for good, set option"
                " failOnDataLoss to false to go on"
            )

    # On executors.

    @yielded_plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpoolSlice)
        columns = Columns(partition.origin)
        for chunk, skip, take in partition.pieces:
            packets = read_chunk(Path(partition.directory), chunk)
            spans = packets_of(packets)[skip : skip + take]
            columns.add(packets, spans, chunk.first_id + skip, chunk.arrived_us)
            if len(columns) >= BATCH_ROWS:
                yield columns.batch()
                columns = Columns(partition.origin)
        if len(columns):
            yield columns.batch()


def _limited(start: Offset, end: Offset, rows_max: int | None) -> Offset:
    """The ends, drawn in so that the rows between are at most `rows_max`, shared fairly."""
    if rows_max is None:
        return {key: max(start[key], end[key]) for key in start}
    found, left = dict(start), rows_max
    open_keys = [key for key in start if end[key] > start[key]]
    while left and open_keys:
        share = max(1, left // len(open_keys))
        for key in list(open_keys):
            step = min(share, end[key] - found[key], left)
            found[key] += step
            left -= step
            if found[key] >= end[key]:
                open_keys.remove(key)
    return found


def _shares(pieces: list[Piece], rows_max: int) -> Iterator[list[Piece]]:
    """The pieces in groups of about `rows_max` rows."""
    group: list[Piece] = []
    rows = 0
    for piece in pieces:
        group.append(piece)
        rows += piece.take
        if rows >= rows_max:
            yield group
            group, rows = [], 0
    if group:
        yield group
