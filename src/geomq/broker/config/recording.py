"""The settings of what a broker writes about its work: the log, and the trace of every event."""

from typing import Annotated, Literal

from msgspec import Meta

from geomq.broker.config.section import Path, Seconds, Section, about
from geomq.routing.trace.records import STEPS, Step


class Trace(Section, frozen=True):
    """What happens to every event and client, record by record, in Parquet files. Needs `geomq[data]`."""

    directory: Annotated[
        Path | None,
        about("Folder for the files; brokers may share one. Without it, nothing is recorded.", path="write"),
    ] = None
    steps: Annotated[tuple[Step, ...], about("Which steps are recorded.")] = STEPS
    file_rows_max: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)], about("A file is closed after this many records,")
    ] = 200_000
    file_bytes_max: Annotated[
        Annotated[int, Meta(ge=1_024, le=1 << 32)], about("or with about this many bytes before compression,")
    ] = 67_108_864
    file_s_max: Annotated[Seconds, about("or after this many seconds; a killed broker loses the open file.")] = 60.0
    kept_bytes_max: Annotated[
        Annotated[int, Meta(ge=1_024, le=1 << 50)],
        about("Bytes of this broker's files to keep; beyond that the oldest are removed."),
    ] = 1_073_741_824
    queue_bytes_max: Annotated[
        Annotated[int, Meta(ge=1_024, le=1 << 40)],
        about("Bytes of records waiting to be written; beyond that records are dropped and counted."),
    ] = 67_108_864


class Log(Section, frozen=True):
    """What the broker writes about its work."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], about("debug, info, warning or error.", reload=True)
    ] = "info"
    format: Annotated[Literal["text", "json"], about("text or json, one line each.", reload=True)] = "text"
    file: Annotated[Path | None, about("File to append to; standard error when not given.", path="write")] = None
    clients: Annotated[
        Literal["all", "refused", "none"],
        about(
            "Lines about clients, at level info: all who connect, disconnect or are refused; refused; or none.",
            reload=True,
        ),
    ] = "all"
    client_lines_max: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)],
        about(
            "So many such lines of each kind in ten seconds, and one that says how many more there were.", reload=True
        ),
    ] = 100
