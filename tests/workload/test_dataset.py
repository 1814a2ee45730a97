"""Workloads on disk: whole or refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geomq.errors import DataError, UsageError
from geomq.workload.dataset import DatasetSpec, part_name, read_manifest
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.files import new_directory, read_table
from geomq.workload.generation.generate import write_workload
from geomq.workload.generation.presets import Request, build
from geomq.workload.schema import DATASETS, arrow_schema


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "hikers"
    request = Request(clients=6000, topics=20, seconds=200, seed=4)
    world, spec = build(request)
    summary = write_workload(directory, world, spec, request, overwrite=False)
    assert summary["parts"] == 1
    return directory


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(written, tmp_path / "copy"))


def test_a_dataset_evaluates_like_the_workload_it_was_made_from(written: Path) -> None:
    world, spec = build(Request(clients=6000, topics=20, seconds=200, seed=4))
    dataset = DatasetSpec(written)
    assert dataset.world == world
    for a, b in zip(
        evaluate(world, spec, 4, paper=False), evaluate(dataset.world, dataset, 0, paper=False), strict=True
    ):
        assert np.array_equal(a, b)


def test_scenarios_keep_their_circles_on_disk(tmp_path: Path) -> None:
    request = Request(preset="validation", seed=1)
    world, spec = build(request)
    write_workload(tmp_path / "check", world, spec, request, overwrite=False)
    assert DatasetSpec(tmp_path / "check").world == world


def read_block(directory: Path) -> None:
    dataset = DatasetSpec(directory)
    dataset.block(dataset.world, 0, 0)


def test_a_truncated_part_is_refused(copy: Path) -> None:
    part = copy / part_name("actions", 0)
    part.write_bytes(part.read_bytes()[:2000])
    with pytest.raises(DataError, match="is not a readable actions file"):
        read_block(copy)


def test_a_missing_part_is_refused(copy: Path) -> None:
    (copy / part_name("clients", 0)).unlink()
    with pytest.raises(DataError, match="does not exist"):
        read_block(copy)


def test_a_missing_column_is_refused(copy: Path) -> None:
    part = copy / part_name("actions", 0)
    pq.write_table(pq.read_table(part).drop_columns(["kind"]), part)
    with pytest.raises(DataError, match="no column 'kind'"):
        read_block(copy)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("client", 7000, "client of another part"),
        ("kind", 9, "unknown kind"),
        ("t_ms", -1, "unknown kind or a time"),
        ("topic", 20, "topic number"),
        ("lat_e7", 900_000_001, "not on earth"),
        ("radius_cm", -2, "radius is negative"),
        ("topic", None, "empty cells"),
    ],
)
def test_values_out_of_range_are_refused(copy: Path, column: str, value: int | None, words: str) -> None:
    part = copy / part_name("actions", 0)
    table = pq.read_table(part)
    position = table.schema.get_field_index(column)
    row = int(np.flatnonzero(table.column("kind").to_numpy() == 2)[0])
    values = table.column(column).to_pylist()
    values[row] = value
    pq.write_table(
        table.set_column(position, table.schema.field(column), pa.array(values, table.field(column).type)), part
    )
    with pytest.raises(DataError, match=words):
        read_block(copy)


def test_clients_that_do_not_know_their_topics_are_refused(copy: Path) -> None:
    part = copy / part_name("clients", 0)
    table = pq.read_table(part)
    nothing = pa.array([[]] * table.num_rows, table.field("topics").type)
    pq.write_table(table.set_column(table.schema.get_field_index("topics"), table.field("topics"), nothing), part)
    with pytest.raises(DataError, match="subscribes to a topic that is not among its topics"):
        read_block(copy)


def test_a_directory_without_manifest_is_no_dataset(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.raises(DataError, match="not a complete geomq dataset"):
        read_manifest(copy, "workload")


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", "{}", '{"kind": "results"}', "\xff"])
def test_a_strange_manifest_is_refused(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(DataError):
        read_manifest(copy, "workload")


@pytest.mark.parametrize(
    ("name", "value"),
    [("field_deg", None), ("seconds", "x"), ("parts", -1), ("parts", 1e300), ("circles_deg", 5), ("circles_deg", [[]])],
)
def test_a_damaged_manifest_is_named(copy: Path, name: str, value: object) -> None:
    content = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(content | {name: value}))
    spec = DatasetSpec(copy)
    with pytest.raises(DataError, match=f"manifest.json is damaged: {name} is"):
        _ = spec.world, spec.end_ms, spec.block_count(spec.world)


def _plain(kind: str) -> object:
    """A value of an Arrow type."""
    return {"string": "x", "double": 0.0, "list<item: int32>": [0], "list<element: int32>": [0]}.get(kind, 0)


@pytest.mark.parametrize(
    ("dataset", "column", "value"),
    [
        ("brokers", "population", None),
        ("brokers", "lat", float("nan")),
        ("topics", "name", None),
        ("clients", "topics", [None]),
        ("places", "lon", 181.0),
        ("results", "events", None),
        ("runs", "event_fence_deg", float("inf")),
        ("trace", "broker", None),
        ("trace", "t_ms", float("nan")),
        ("trace", "t_ms", 1e300),
        ("trace", "lat", -91.0),
    ],
)
def test_cells_that_say_nothing_are_refused(tmp_path: Path, dataset: str, column: str, value: object) -> None:
    row = {field.name: _plain(str(field.type)) for field in arrow_schema(dataset)}
    for number, wrong in enumerate((row, row | {column: value})):
        pq.write_table(pa.Table.from_pylist([row, wrong], arrow_schema(dataset)), tmp_path / f"{number}.parquet")
    assert read_table(tmp_path / "0.parquet", dataset).num_rows == 2
    with pytest.raises(DataError, match=rf"1.parquet is not a readable {dataset} file: its column '{column}' has"):
        read_table(tmp_path / "1.parquet", dataset)


def test_another_version_is_refused(copy: Path) -> None:
    content = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(DataError, match="version 99"):
        read_manifest(copy, "workload")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail_inside() -> None:
        with new_directory(tmp_path / "x") as partial:
            (partial / "half").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match="No space left"):
        fail_inside()
    assert list(tmp_path.iterdir()) == []


def expect_refused(path: Path, words: str, **how: Any) -> None:
    with pytest.raises(UsageError, match=words), new_directory(path, **how):
        pass


def test_an_existing_directory_is_kept_unless_told_otherwise(written: Path, tmp_path: Path) -> None:
    expect_refused(written, "choose another directory or give --overwrite$", kind="workload")
    expect_refused(written, "choose another directory$", overwrite=True)
    expect_refused(tmp_path, "left unchanged", kind="workload", overwrite=True)
    (tmp_path / "manifest.json").write_text('{"name": "a browser extension", "version": "1.0"}')
    expect_refused(tmp_path, "left unchanged", kind="workload", overwrite=True)


def test_only_a_dataset_of_the_same_kind_is_replaced(copy: Path) -> None:
    expect_refused(copy, "contains no results", kind="results", overwrite=True)
    with new_directory(copy, kind="workload", overwrite=True) as partial:
        (partial / "new").touch()
    assert [path.name for path in copy.iterdir()] == ["new"]


@pytest.mark.parametrize("name", ["notes.txt", "clients/notes.txt", "mine/part-00000.parquet"])
def test_a_dataset_with_files_of_others_is_left_alone(copy: Path, name: str) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text("mine")
    expect_refused(copy, "also holds", kind="workload", overwrite=True)
    assert (copy / name).read_text() == "mine"


def test_a_link_to_a_dataset_stays_a_link(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(copy)
    with new_directory(tmp_path / "link", kind="workload", overwrite=True) as partial:
        (partial / "new").touch()
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in copy.iterdir()] == ["new"]


def test_something_that_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("hello")
    with pytest.raises(DataError, match="not a readable brokers file"):
        read_table(tmp_path / "x.parquet", "brokers")
    with pytest.raises(DataError):
        read_table(tmp_path, "brokers")


def test_every_dataset_has_a_schema() -> None:
    for name, columns in DATASETS.items():
        assert arrow_schema(name).names == [column.name for column in columns]


def test_the_reference_page_shows_the_schemas_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "schemas.md").read_text()
    for name, columns in DATASETS.items():
        rows = "\n".join(f"| `{column.name}` | {column.type} | {column.meaning} |" for column in columns)
        assert f"### {name}\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n" in page
