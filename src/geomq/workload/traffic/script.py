"""Workloads that are already written down: evaluate them again, or walk through them action by action.

Owns the way back from columns to objects, for drivers that act one step at a time, and the recipe that hands out
recorded actions block by block. Refuses actions of clients it does not know.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomq.errors import DataError
from geomq.geo import Circle, Location
from geomq.workload.model import BLOCK_CLIENTS, DEGREE, NO_FENCE, Actions, Block, Clients, Kind, Spec, Workload
from geomq.workload.world import World


@dataclass(frozen=True, slots=True)
class Action:
    """One client action with names instead of numbers; `topic` and `fence` are None where there is none."""

    t_ms: int
    client: int
    home: int
    kind: Kind
    topic: str | None
    location: Location
    fence: Circle | None
    payload_bytes: int


def actions_of(workload: Workload) -> Iterator[Action]:
    """The actions of a workload in their order."""
    actions, homes = workload.actions, workload.clients.home
    for i in range(len(actions)):
        location = Location(actions.lat_e7[i] / DEGREE, actions.lon_e7[i] / DEGREE)
        radius_cm, topic = int(actions.radius_cm[i]), int(actions.topic[i])
        client = int(actions.client[i])
        yield Action(
            int(actions.t_ms[i]),
            client,
            int(homes[client]),
            Kind(int(actions.kind[i])),
            workload.topic_names[topic] if topic >= 0 else None,
            location,
            Circle(location, radius_cm / 100.0) if radius_cm != NO_FENCE else None,
            int(actions.payload_bytes[i]),
        )


@dataclass(frozen=True)
class RecordedSpec(Spec):
    """A workload in memory as a recipe: clients 0..n-1, numbered broker by broker."""

    workload: Workload

    def __post_init__(self) -> None:
        clients, actions = self.workload.clients, self.workload.actions
        if not np.array_equal(clients.client, np.arange(len(clients))):
            raise DataError("clients must be numbered 0, 1, 2 and so on")
        if np.any(np.diff(clients.home) < 0):
            raise DataError("clients must be numbered broker by broker")
        if len(actions) and not (actions.client.min() >= 0 and actions.client.max() < len(clients)):
            raise DataError("an action names a client that is not in the list of clients")
        topics = len(self.workload.topic_names)
        if np.any(actions.topic >= topics) or np.any((actions.topic < 0) & (actions.kind != Kind.LOCATION)):
            raise DataError("an action names a topic that is not in the list of topics")

    @property
    def end_ms(self) -> int:
        return int(self.workload.actions.t_ms.max(initial=0)) + 1

    def topic_names(self) -> list[str]:
        return self.workload.topic_names

    def homes(self, world: World) -> NDArray[np.int64]:
        counts = np.bincount(self.workload.clients.home, minlength=len(world))
        if len(counts) > len(world):
            raise DataError(f"a client's home is broker {len(counts) - 1}, but there are only {len(world)}")
        return counts.astype(np.int64)

    def block(self, world: World, seed: int, number: int) -> Block:
        clients, actions = self.workload.clients, self.workload.actions
        first, last = number * BLOCK_CLIENTS, (number + 1) * BLOCK_CLIENTS
        mine = slice(first, last)
        return Block(
            Clients(
                clients.client[mine],
                clients.home[mine],
                clients.lat_e7[mine],
                clients.lon_e7[mine],
                clients.topics[mine],
            ),
            actions.take((actions.client >= first) & (actions.client < last)),
        )


def recorded(topic_names: list[str], homes: NDArray[np.int32], actions: Actions) -> RecordedSpec:
    """A recipe from actions alone: each client's topics are those it uses."""
    used: list[list[int]] = [[] for _ in homes]
    for client, topic in zip(actions.client.tolist(), actions.topic.tolist(), strict=True):
        if topic >= 0 and topic not in used[client]:
            used[client].append(topic)
    width = max((len(topics) for topics in used), default=0) or 1
    topics = np.array([row + [-1] * (width - len(row)) for row in used], np.int32).reshape(len(homes), width)
    start = np.zeros(len(homes), np.int32)
    clients = Clients(np.arange(len(homes), dtype=np.int32), homes.astype(np.int32), start, start, topics)
    return RecordedSpec(Workload(topic_names, clients, actions.in_order()))
