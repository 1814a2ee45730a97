"""What the clients of one replayer process send and when, as packets made beforehand: little is left for later.

Owns how actions become MQTT packets and the form of a payload: sixteen bytes of client, number and time of sending,
then zeros up to the size the workload asks for. In plain mode there are no places and no fences.
"""

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.mqtt.codec.packets import Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.vocabulary import FENCE_PROPERTY, LOCATION_PROPERTY, LOCATION_TOPIC
from geomq.workload.model import DEGREE, NO_FENCE, Kind, Workload

STAMP = struct.Struct(">IId")
"""Client, its event's number, and when it was sent in milliseconds since 1970."""
RETAINED_NEVER = 2


class Step(NamedTuple):
    """One packet to send: when, which row of the actions, who, what; an event's payload lacks the stamp before it."""

    due_ms: float
    row: int
    client: int
    kind: int
    number: int
    packet: Publish | Subscribe


def stamped(step: Step, sent_ms: float) -> Publish | Subscribe:
    """The packet of a step that is sent now."""
    packet = step.packet
    if step.kind != Kind.EVENT:
        return packet
    assert isinstance(packet, Publish)
    stamp = STAMP.pack(step.client, step.number, sent_ms)
    return Publish(packet.topic, stamp + packet.payload, packet.qos, properties=packet.properties)


def read_stamp(payload: bytes) -> tuple[int, int, float] | None:
    """Who sent a payload, its number and when; None if it is not of a replayer."""
    return STAMP.unpack_from(payload) if len(payload) >= STAMP.size else None


def script_of(workload: Workload, mine: NDArray[np.bool_], plain: NDArray[np.bool_], qos: int) -> list[Step]:
    """The steps of the clients that are `mine`, in order; `plain` are those who speak ordinary MQTT."""
    actions = workload.actions
    rows = np.flatnonzero(mine[actions.client])
    writer = _Writer(workload.topic_names, qos)
    columns = (rows, actions.t_ms[rows], actions.client[rows], actions.kind[rows], actions.topic[rows])
    geo = (actions.lat_e7[rows], actions.lon_e7[rows], actions.radius_cm[rows], actions.payload_bytes[rows])
    steps = []
    for row, t_ms, client, kind, topic, lat, lon, radius, size in zip(
        *(column.tolist() for column in (*columns, *geo)), strict=True
    ):
        step = writer.step(client, kind, topic, (lat, lon), radius, size, plain=bool(plain[client]))
        if step is not None:
            steps.append(Step(float(t_ms), row, client, kind, *step))
    return steps


class _Writer:
    """Remembers of each client what the next packet depends on."""

    def __init__(self, topic_names: list[str], qos: int) -> None:
        self._names = topic_names
        self._qos = qos
        self._numbers: dict[int, int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._zeros: dict[int, bytes] = {}

    def step(
        self, client: int, kind: int, topic: int, place: tuple[int, int], radius: int, size: int, *, plain: bool
    ) -> tuple[int, Publish | Subscribe] | None:
        """An event's number and the packet; None for what ordinary MQTT has no word for."""
        if kind == Kind.LOCATION:
            self._places[client] = place
            text = place_text(place).encode()
            return None if plain else (-1, Publish(LOCATION_TOPIC, text))
        properties = self._geo_context(client, kind, place, radius) if not plain else NO_PROPERTIES
        if kind == Kind.SUBSCRIPTION:
            request = SubscribeRequest(self._names[topic], self._qos, retain_handling=RETAINED_NEVER)
            return -1, Subscribe(0, (request,), properties)
        number = self._numbers.get(client, 0)
        self._numbers[client] = number + 1
        padding = max(0, size - STAMP.size)
        zeros = self._zeros.setdefault(padding, bytes(padding))
        return number, Publish(self._names[topic], zeros, self._qos, properties=properties)

    def _geo_context(self, client: int, kind: int, place: tuple[int, int], radius: int) -> Properties:
        pairs = []
        if radius != NO_FENCE:
            pairs.append((FENCE_PROPERTY, f"geo:{place_text(place)};u={radius / 100:.2f}"))
        if kind == Kind.EVENT and self._places.get(client) != place:
            self._places[client] = place
            pairs.append((LOCATION_PROPERTY, place_text(place)))
        return Properties(user_properties=tuple(pairs)) if pairs else NO_PROPERTIES


def place_text(place: tuple[int, int]) -> str:
    """A place in 1e-7 degrees as text that reads back to the same numbers."""
    return f"{place[0] / DEGREE:.7f},{place[1] / DEGREE:.7f}"
