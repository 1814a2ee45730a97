"""Parquet files that are whole or not there.

Owns reading with the schema checked and writing by rename, so that a reader never sees half a file. Whatever is wrong
with a file comes out as one DataError that names it.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from geomq.errors import DataError, UsageError
from geomq.extras import need
from geomq.workload.schema import MAY_BE_EMPTY, RANGES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

REPLACEABLE = {
    "workload": r"manifest\.json|(brokers|topics)\.parquet|(clients|actions)(/part-\d+\.parquet)?",
    "results": r"manifest\.json|(runs|results|histograms|links|places|checks)\.parquet",
    "sweep": r"manifest\.json|simulations\.parquet",
}
"""The kinds of datasets that may be written anew in their place, and what is in their directories."""


def read_table(path: Path, dataset: str) -> "pa.Table":
    """A file's rows, exactly in the columns of its dataset."""
    need("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(dataset)
    try:
        # A ParquetFile reads this one file; read_table would guess at neighbours and partitions.
        with pq.ParquetFile(path) as file:
            missing = [name for name in schema.names if name not in file.schema_arrow.names]
            if missing:
                raise DataError(f"{path} has no column {missing[0]!r}; it is not a {dataset} file")
            table = file.read(columns=schema.names).select(schema.names).cast(schema)
        _check_cells(table, dataset)
        return table
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} is not a readable {dataset} file: {reason}") from None


def _check_cells(table: "pa.Table", dataset: str) -> None:
    """No cell is empty that may not be, no place off the earth, no time out of time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, column in zip(table.column_names, table.columns, strict=True):
        inner = pc.list_flatten(column).null_count if pa.types.is_list(column.type) else 0
        if column.null_count + inner and name not in MAY_BE_EMPTY.get(dataset, ()):
            raise ValueError(f"its column {name!r} has empty cells")
        if not pa.types.is_floating(column.type):
            continue
        low, high = RANGES.get(name, (float("-inf"), float("inf")))
        proper = pc.and_(pc.is_finite(column), pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
        if pc.all(proper).as_py() is False:
            raise ValueError(f"its column {name!r} has a number that is out of range")


def write_table(table: "pa.Table", path: Path) -> None:
    """Write a file under a temporary name, then give it its own."""
    need("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, partial, compression="zstd")
        os.replace(partial, path)
    except (OSError, pa.ArrowException) as error:
        partial.unlink(missing_ok=True)
        raise DataError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def check_new(path: Path, *, kind: str | None = None, overwrite: bool = False) -> None:
    """Refuse to write over what is there, unless `overwrite` and it is a dataset of this kind and nothing else."""
    if not path.exists():
        check_writable(path)
        return
    if not overwrite or kind is None:
        raise UsageError(f"{path} already exists; choose another directory{' or give --overwrite' if kind else ''}")
    if _kind_of(path / "manifest.json") != kind:
        raise UsageError(f"{path} contains no {kind} written by geomq and is left unchanged; choose another directory")
    names = (found.relative_to(path).as_posix() for found in sorted(path.rglob("*")))
    foreign = next((name for name in names if not re.fullmatch(REPLACEABLE[kind], name)), None)
    if foreign is not None:
        raise UsageError(f"{path} also holds {foreign!r} and is left alone; choose another directory")


def check_writable(directory: Path) -> None:
    """Refuse a path that is not a directory or cannot be created or written."""
    whole = directory.absolute()
    there = next(path for path in (whole, *whole.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise DataError(f"cannot write {directory}: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DataError(f"cannot write {directory}: {os.strerror(errno.EACCES)}")


def _kind_of(manifest: Path) -> str | None:
    """Of what this is the manifest, if of a dataset; others call files by that name, too."""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    ours = isinstance(content, dict) and {"kind", "version"} <= content.keys()
    return str(content["kind"]) if ours else None


@contextmanager
def new_directory(path: Path, *, kind: str | None = None, overwrite: bool = False) -> Iterator[Path]:
    """A directory that takes its name only when the body has finished; with `overwrite` in place of one of its kind."""
    check_new(path, kind=kind, overwrite=overwrite)
    path = path.resolve()
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
