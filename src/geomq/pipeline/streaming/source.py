"""Events into Spark: `readStream` from brokers, `read` from an archive.

The stream reader runs on the driver with one receiver per session; offsets are the numbers of the spools, so a batch
that is repeated after a crash holds exactly the same events. Executors read the spools. When Spark commits a batch, or
asks for the next one, the receivers learn which events it has finished.
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
from geomq.pipeline.streaming.options import SourceOptions
from geomq.pipeline.streaming.plainly import plainly, yielded_plainly
from geomq.pipeline.streaming.receiver import Receiver
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
        self._receivers: list[Receiver] = []
        self._started = False
        self._until: Offset | None = None

    # On the driver.

    @plainly
    def initialOffset(self) -> Offset:  # noqa: N802
        return {receiver.key: receiver.spool.begin for receiver in self._open()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.events_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @plainly
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch may go. Spark is done with everything before `start`, or it would not ask."""
        self.commit(start)
        self._start()
        if self._until is not None and not all(receiver.settled for receiver in self._receivers):
            self._until = self._settle()
        ends = (
            {receiver.key: receiver.spool.end for receiver in self._receivers} if self._until is None else self._until
        )
        begins = {receiver.key: max(start.get(receiver.key, 0), receiver.spool.begin) for receiver in self._receivers}
        return start | _limited(begins, ends, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return {receiver.key: receiver.spool.end for receiver in self._receivers} or None

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is available now: what the brokers held for our sessions when we came."""
        self._start()
        self._until = self._settle()

    @plainly
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        found: list[InputPartition] = []
        for receiver in self._open():
            if receiver.key not in end:
                continue
            begin = start.get(receiver.key, 0)
            pieces = receiver.spool.pieces(begin, end[receiver.key])
            self._check_there(receiver, start.get(receiver.key), end[receiver.key], pieces)
            name = f"{receiver.client_id}@{receiver.address}"
            origin = Origin(str(receiver.address), name, self._options.login.version, receiver.tells)
            shares = _shares(pieces, self._options.partition_events_max)
            found += [SpoolSlice(str(receiver.directory), origin, share) for share in shares]
        return found

    @plainly
    def commit(self, end: Offset) -> None:
        for receiver in self._open():
            if receiver.key in end:
                receiver.commit(end[receiver.key])

    def stop(self) -> None:
        for receiver in self._receivers:
            receiver.request_stop()
        for receiver in self._receivers:
            receiver.stop()
        self._receivers = []

    def _open(self) -> list[Receiver]:
        if not self._receivers:
            options = self._options
            self._receivers = [
                Receiver(options, address, member) for address in options.brokers for member in range(options.sessions)
            ]
        return self._receivers

    def _start(self) -> None:
        """Connect, and say at once if that fails or has failed since."""
        if not self._started:
            self._started = True
            for receiver in self._open():
                _ = receiver.spool
                receiver.start()
            deadline = time.monotonic() + 2 * CONNECT_TIMEOUT_S
            for receiver in self._receivers:
                while not receiver.connected.wait(0.05) and receiver.trouble is None and time.monotonic() < deadline:
                    pass
        for receiver in self._receivers:
            if receiver.trouble is not None:
                raise receiver.trouble
            if receiver.lost and self._options.fail_on_data_loss:
                raise DataError(
                    f"broker {receiver.address} has lost the session {receiver.client_id}: events may be lost;"
                    " set option failOnDataLoss to false to continue"
                )

    def _settle(self) -> Offset:
        """The ends once everything is here, or as much as there can be before Spark commits some of it."""
        deadline = time.monotonic() + SETTLE_PATIENCE_S
        while time.monotonic() < deadline:
            if all(receiver.settled or receiver.window_full for receiver in self._receivers):
                break
            time.sleep(0.02)
        return {receiver.key: receiver.spool.end for receiver in self._receivers}

    def _check_there(self, receiver: Receiver, start: int | None, end: int, pieces: list[Piece]) -> None:
        """All numbers of a planned batch must be in the spool, unless the user takes what there is.

        A spool that was begun anew starts with a higher number, so a batch over the gap is noticed here too.
        """
        if not self._options.fail_on_data_loss or start is None or start >= end:
            return
        if sum(piece.take for piece in pieces) != end - start:
            raise DataError(
                f"the spool {receiver.directory} lacks events of the checkpoint; if they are lost for good, set option"
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
