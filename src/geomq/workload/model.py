"""What a workload is: clients, their actions as columns, and the recipe that makes them block by block.

Owns the columnar form that every engine reads. Places are whole 1e-7 degrees, radii whole centimetres and times
whole milliseconds, so all engines compute with identical numbers. Refuses to know any particular workload.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.workload.world import World

Int32Array = NDArray[np.int32]
FloatArray = NDArray[np.float64]

BLOCK_CLIENTS = 5000
DEGREE = 10_000_000
NO_TOPIC = -1
NO_FENCE = -1
SECONDS_MAX = 500_000
CLIENTS_MAX = 1_000_000_000


class Kind(IntEnum):
    """The client actions, in the order in which simultaneous ones take effect."""

    LOCATION = 0
    SUBSCRIPTION = 1
    EVENT = 2


@dataclass(frozen=True, slots=True)
class Actions:
    """What clients do, one row each.

    A location row says where the client is; a subscription row sets the fence of (client, topic), centred on the
    row's place; an event row is published from its place, which is also the centre of its fence.
    """

    t_ms: Int32Array
    client: Int32Array
    kind: NDArray[np.uint8]
    topic: Int32Array
    lat_e7: Int32Array
    lon_e7: Int32Array
    radius_cm: Int32Array
    payload_bytes: Int32Array

    def __len__(self) -> int:
        return len(self.t_ms)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> "Actions":
        return Actions(*(getattr(self, field.name)[index] for field in fields(self)))

    def in_order(self) -> "Actions":
        """Sorted by (time, client), otherwise in the order they were made."""
        return self.take(np.lexsort((self.client, self.t_ms)))

    @staticmethod
    def concatenate(parts: Sequence["Actions"]) -> "Actions":
        return Actions(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Actions)))


@dataclass(frozen=True, slots=True)
class Clients:
    """Who acts: number, home broker, first place, and the topics of each (short rows end in NO_TOPIC)."""

    client: Int32Array
    home: Int32Array
    lat_e7: Int32Array
    lon_e7: Int32Array
    topics: Int32Array

    def __len__(self) -> int:
        return len(self.client)

    @staticmethod
    def concatenate(parts: Sequence["Clients"]) -> "Clients":
        return Clients(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Clients)))


@dataclass(frozen=True, slots=True)
class Block:
    """One block of clients with everything they do."""

    clients: Clients
    actions: Actions


class Subscribers(NamedTuple):
    """Who subscribes when, and its home."""

    t_ms: Int32Array
    client: Int32Array
    home: Int32Array


class Spec(ABC):
    """A recipe for a workload. `block` is a pure function of world, seed and number."""

    @abstractmethod
    def topic_names(self) -> list[str]:
        """The names behind the topic numbers."""

    @abstractmethod
    def homes(self, world: World) -> NDArray[np.int64]:
        """How many clients each broker has; clients are numbered broker by broker."""

    @abstractmethod
    def block(self, world: World, seed: int, number: int) -> Block:
        """The clients of block `number`, and their actions in no particular order."""

    @property
    @abstractmethod
    def end_ms(self) -> int:
        """Actions happen before this time."""

    def block_count(self, world: World) -> int:
        return -(-int(self.homes(world).sum()) // BLOCK_CLIENTS)

    def subscribers(self, world: World, seed: int, number: int) -> Subscribers:
        """Some subscriptions of block `number`, the first of every client among them."""
        block = self.block(world, seed, number)
        made = block.actions.take(block.actions.kind == Kind.SUBSCRIPTION)
        return Subscribers(made.t_ms, made.client, block.clients.home[made.client - block.clients.client[0]])


@dataclass(frozen=True, slots=True)
class Workload:
    """A whole workload in memory, for simulation and replay."""

    topic_names: list[str]
    clients: Clients
    actions: Actions


def generate(world: World, spec: Spec, seed: int) -> Workload:
    """All blocks of a workload, actions sorted by (time, client, order of making)."""
    blocks = [spec.block(world, seed, number) for number in range(spec.block_count(world))]
    if not blocks:
        raise UsageError("the workload has no clients; ask for more of them")
    return Workload(
        topic_names=spec.topic_names(),
        clients=Clients.concatenate([block.clients for block in blocks]),
        actions=Actions.concatenate([block.actions for block in blocks]).in_order(),
    )


def first_subscribers(world: World, spec: Spec, seed: int) -> Subscribers:
    """The first subscriber of each broker that has one, in the order in which they come."""
    first: dict[int, tuple[int, int]] = {}
    for number in range(spec.block_count(world)):
        made = spec.subscribers(world, seed, number)
        order = np.lexsort((made.client, made.t_ms, made.home))
        for row in order[np.unique(made.home[order], return_index=True)[1]].tolist():
            home, mine = int(made.home[row]), (int(made.t_ms[row]), int(made.client[row]))
            first[home] = min(first.get(home, mine), mine)
    rows = sorted((t, client, home) for home, (t, client) in first.items())
    columns = np.array(rows, np.int32).reshape(-1, 3).T
    return Subscribers(*columns)


def block_random(seed: int, number: int) -> np.random.Generator:
    """The source of chance of one block: the same for the same seed and number, whoever asks."""
    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), number]))


def block_homes(homes: NDArray[np.int64], number: int) -> tuple[Int32Array, Int32Array]:
    """Client numbers of a block and the home of each."""
    ends = np.cumsum(homes)
    first = number * BLOCK_CLIENTS
    last = min(first + BLOCK_CLIENTS, int(ends[-1]))
    clients = np.arange(first, last, dtype=np.int32)
    return clients, np.searchsorted(ends, clients, side="right").astype(np.int32)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside [low, high], nan included."""
    if not low <= value <= high:
        raise UsageError(f"{name} must be between {low:,.12g} and {high:,.12g}, not {value:,.12g}")


class ActionList:
    """Gathers actions column by column while a block is made."""

    def __init__(self) -> None:
        self._parts: list[Actions] = []

    def add(
        self,
        kind: Kind,
        t_ms: NDArray[np.int64],
        client: Int32Array,
        lat_e7: Int32Array,
        lon_e7: Int32Array,
        *,
        topic: Int32Array | int = NO_TOPIC,
        radius_cm: Int32Array | int = NO_FENCE,
        payload_bytes: Int32Array | int = 0,
    ) -> Self:
        """Append rows; single numbers stand for whole columns."""
        count = len(client)
        self._parts.append(
            Actions(
                np.asarray(t_ms, np.int32),
                np.asarray(client, np.int32),
                np.full(count, kind, np.uint8),
                _column(topic, count),
                np.asarray(lat_e7, np.int32),
                np.asarray(lon_e7, np.int32),
                _column(radius_cm, count),
                _column(payload_bytes, count),
            )
        )
        return self

    def before(self, end_ms: int) -> Actions:
        """Everything gathered that happens before `end_ms`."""
        actions = Actions.concatenate(self._parts)
        return actions.take(actions.t_ms < end_ms)


def _column(value: Int32Array | int, count: int) -> Int32Array:
    return np.full(count, value, np.int32) if isinstance(value, int) else np.asarray(value, np.int32)


def radius_cm_of(degrees: float) -> int:
    """Whole centimetres for a radius in degrees of arc."""
    from geomq.geo import degrees_to_m

    return round(degrees_to_m(degrees) * 100)
