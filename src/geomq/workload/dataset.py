"""Workloads on disk: a directory of Parquet files that is also a recipe, so a dataset can be evaluated like a preset.

    manifest.json   what it is: version, seed, parts, field size     (written last)
    brokers.parquet, topics.parquet
    clients/part-00000.parquet, actions/part-00000.parquet           a part is some whole blocks of clients

Owns that layout. Refuses anything that does not fit together: a missing part, another version, clients out of order.
"""

import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geomq.errors import DataError
from geomq.workload.cities import Place
from geomq.workload.files import read_table, write_table
from geomq.workload.model import Actions, Block, Clients, Kind, Spec
from geomq.workload.schema import VERSION, arrow_schema
from geomq.workload.world import World

if TYPE_CHECKING:
    import pyarrow as pa

PART_BLOCKS = 10
MANIFEST = "manifest.json"
_MANIFEST_BYTES_MAX = 1_000_000
_NUMBER_MAX = 1 << 31


@dataclass(frozen=True)
class DatasetSpec(Spec):
    """A dataset as a recipe; block k is its part k."""

    directory: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.directory, "workload")

    @cached_property
    def world(self) -> World:
        """The world the dataset was made in."""
        given = self.manifest.get("circles_deg", [])
        circles = tuple(_number(radius, "circles_deg", self.directory) for radius in _listed(given, self.directory))
        table = read_table(self.directory / "brokers.parquet", "brokers").to_pydict()
        places = zip(table["name"], table["lat"], table["lon"], table["population"], strict=True)
        if circles:
            return World(tuple(Place(*place) for place in places), 1, circles)
        return World.of_places([Place(*place) for place in places], int(self._said("field_deg")))

    @property
    def end_ms(self) -> int:
        return int(self._said("seconds") * 1000)

    def _said(self, name: str) -> float:
        """A number of the manifest."""
        return _number(self.manifest.get(name), name, self.directory)

    def topic_names(self) -> list[str]:
        names: list[str] = read_table(self.directory / "topics.parquet", "topics").column("name").to_pylist()
        return names

    def homes(self, world: World) -> NDArray[np.int64]:
        table = read_table(self.directory / "brokers.parquet", "brokers")
        clients: NDArray[np.int64] = table.column("clients").to_numpy()
        return clients

    def block_count(self, world: World) -> int:
        return int(self._said("parts"))

    def block(self, world: World, seed: int, number: int) -> Block:
        block = read_part(self.directory, number)
        _check_part(block, self.homes(world), len(self.topic_names()), self.directory / part_name("actions", number))
        return block


def part_name(dataset: str, number: int) -> str:
    return f"{dataset}/part-{number:05d}.parquet"


def write_frame(directory: Path, world: World, spec: Spec) -> None:
    """The small files: brokers and topics."""
    import pyarrow as pa

    homes = spec.homes(world)
    brokers = [
        (i, place.name, place.lat, place.lon, place.population, int(homes[i])) for i, place in enumerate(world.places)
    ]
    names = spec.topic_names()
    write_table(_rows("brokers", brokers), directory / "brokers.parquet")
    topics = pa.table([np.arange(len(names), dtype=np.int32), names], schema=arrow_schema("topics"))
    write_table(topics, directory / "topics.parquet")


def write_part(directory: Path, number: int, blocks: list[Block]) -> int:
    """One part of clients and actions, the actions in order; returns how many actions."""
    import pyarrow as pa

    clients = Clients.concatenate([block.clients for block in blocks])
    actions = Actions.concatenate([block.actions for block in blocks]).in_order()
    columns = [getattr(actions, field.name) for field in fields(Actions)]
    write_table(pa.table(columns, schema=arrow_schema("actions")), directory / part_name("actions", number))
    width = clients.topics.shape[1]
    offsets = np.arange(0, (len(clients) + 1) * width, width, dtype=np.int32)
    lists = pa.ListArray.from_arrays(offsets, pa.array(clients.topics.ravel()))
    plain = [clients.client, clients.home, clients.lat_e7, clients.lon_e7]
    table = pa.table([*(pa.array(column) for column in plain), lists], schema=arrow_schema("clients"))
    write_table(table, directory / part_name("clients", number))
    return len(actions)


def read_part(directory: Path, number: int) -> Block:
    """One part as a block."""
    actions = read_table(directory / part_name("actions", number), "actions")
    clients = read_table(directory / part_name("clients", number), "clients")
    lists = clients.column("topics").combine_chunks()
    widths = np.diff(lists.offsets.to_numpy())
    width = int(widths.max(initial=1))
    topics = np.full((len(widths), width), -1, np.int32)
    topics[np.arange(width)[None, :] < widths[:, None]] = lists.flatten().to_numpy()
    client, home, lat, lon = (clients.column(name).to_numpy() for name in ("client", "home", "lat_e7", "lon_e7"))
    return Block(
        Clients(client, home, lat, lon, topics),
        Actions(*(actions.column(field.name).to_numpy() for field in fields(Actions))),
    )


def write_manifest(directory: Path, content: dict[str, Any]) -> None:
    (directory / MANIFEST).write_text(json.dumps({"version": VERSION, **content}, indent=2) + "\n")


def read_manifest(directory: Path, *kinds: str) -> dict[str, Any]:
    """The manifest of a complete dataset of one of these kinds."""
    path = directory / MANIFEST
    try:
        if path.stat().st_size > _MANIFEST_BYTES_MAX:
            raise DataError(f"{path} is too large to be a manifest")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{directory} has no {MANIFEST}: it is not a complete geomq dataset") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not readable: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict) or content.get("kind") not in kinds:
        raise DataError(f"{directory} contains no {' or '.join(kinds)} dataset")
    if content.get("version") != VERSION:
        raise DataError(f"{directory} has version {content.get('version')}, this geomq reads {VERSION}")
    return content


def _check_part(block: Block, homes: NDArray[np.int64], topics: int, path: Path) -> None:
    clients, actions = block.clients, block.actions
    expected = np.searchsorted(np.cumsum(homes), clients.client, side="right")
    if len(clients) == 0 or np.any(np.diff(clients.client) != 1) or not np.array_equal(expected, clients.home):
        raise DataError(f"{path}: its clients are not numbered broker by broker")
    first, last = int(clients.client[0]), int(clients.client[-1])
    if len(actions) and not (actions.client.min() >= first and actions.client.max() <= last):
        raise DataError(f"{path}: an action belongs to a client of another part")
    if np.any(actions.kind > max(Kind)) or np.any(actions.t_ms < 0) or np.any(actions.t_ms >= 2**29):
        raise DataError(f"{path}: an action has an unknown kind or a time out of range")
    needs_topic = actions.kind != Kind.LOCATION
    if (
        np.any(actions.topic[needs_topic] < 0)
        or np.any(actions.topic >= topics)
        or np.any((clients.topics >= topics) | (clients.topics < -1))
    ):
        raise DataError(f"{path}: a topic number is out of range")
    wanted = actions.take(actions.kind == Kind.SUBSCRIPTION)
    if not (clients.topics[wanted.client - first] == wanted.topic[:, None]).any(axis=1).all():
        raise DataError(f"{path}: a client subscribes to a topic that is not among its topics")
    if np.any(np.abs(actions.lat_e7.astype(np.int64)) > 900_000_000) or np.any(
        np.abs(actions.lon_e7.astype(np.int64)) > 1_800_000_000
    ):
        raise DataError(f"{path}: a place is not on earth")
    if np.any(actions.radius_cm < -1):
        raise DataError(f"{path}: a radius is negative")


def _number(value: object, name: str, directory: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _NUMBER_MAX:
        raise DataError(f"{directory / MANIFEST} is damaged: {name} is {str(value)[:40]!r}")
    return float(value)


def _listed(value: object, directory: Path) -> list[object]:
    if not isinstance(value, list):
        raise DataError(f"{directory / MANIFEST} is damaged: circles_deg is {str(value)[:40]!r}")
    return value


def _rows(dataset: str, rows: list[tuple[Any, ...]]) -> "pa.Table":
    import pyarrow as pa

    schema = arrow_schema(dataset)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
