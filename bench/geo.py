"""Geo loads: subscribers on one topic, of whom about ten are inside the event's fence; as many moves as events.

Three ways: GeoMQ filters; Mosquitto sends everything to everybody and each client filters (a move costs it nothing);
Mosquitto with a topic per geohash cell, where an event goes to the cells its fence touches, a subscriber is subscribed
to its cell and changes that when it leaves it. In the last two the receivers still have to filter exactly.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.measure import BenchError, Figure
from bench.places import World, best_precision, cell_of, cells_over, fence_text, location_text, make_world
from bench.results import Row
from bench.stage import Stage, cpu_us_each
from bench.swarm import V5, V311, Swarm, clock, connect, publish, subscribe
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish, Unsubscribe
from geomq.mqtt.codec.properties import Properties

TOPIC = "bench/geo"
PAYLOAD = b"x" * 100
SUBACK_SIZE, UNSUBACK_SIZE = 5, 4
STEPS = 4_200


@dataclass(frozen=True, slots=True)
class Turn:
    """What is written for one step, and what comes back."""

    writes: tuple[tuple[socket.socket, bytes], ...]
    received: int
    deliveries: int


def geo(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """CPU per event with one location update, deliveries included."""
    for subscribers in (1_000, 10_000):
        world = make_world(subscribers, STEPS)
        ways: dict[str, tuple[str, Callable[[Swarm, World], Iterator[Turn]]]] = {
            "geomq": ("geomq", fenced),
            "mosquitto filter": ("mosquitto", everywhere),
            "mosquitto cells": ("mosquitto", celled),
        }
        figures: dict[str, Figure] = {}
        notes: dict[str, float] = {}
        for way, (name, turns) in ways.items():
            if name not in stage.names:
                continue
            stage.say(f"geo {subscribers} {way}")
            with stage.fresh(name) as broker, Swarm(broker.port) as swarm:
                course = Course(swarm, turns(swarm, world))
                share = STEPS // (stage.repeats + 1)
                course.run(stage.seconds / 2, share)
                course.deliveries = course.events = 0
                work = partial(course.run, stage.seconds, share)
                figures[way] = Figure.of([cpu_us_each(broker.pid, work) for _ in range(stage.repeats)])
                notes[f"deliveries per event, {way}"] = course.deliveries / course.events
        yield Row("geo", f"{subscribers} subscribers, 10 inside", "us CPU per event + move", figures, (), notes)


class Course:
    """Takes the turns of a world one after the other, waiting for what each one brings."""

    def __init__(self, swarm: Swarm, turns: Iterator[Turn]) -> None:
        self._swarm = swarm
        self._turns = turns
        self.events = self.deliveries = 0

    def run(self, seconds: float, events_max: int) -> int:
        """Turns for this long, at most so many; the number of events."""
        until = clock() + seconds
        for count, turn in enumerate(self._turns, 1):
            for client, data in turn.writes:
                client.sendall(data)
            self._swarm.take(turn.received)
            self.deliveries += turn.deliveries
            if count == events_max or clock() > until:
                self.events += count
                return count
        raise BenchError("the world has come to its end")


def fenced(swarm: Swarm, world: World) -> Iterator[Turn]:
    """GeoMQ: clients say where they are; events carry their fence."""
    moves = partial(publish, "$geo/location", version=V5)
    clients = _join(swarm, [TOPIC] * len(world.places), V5)
    for client, place in zip(clients, world.places, strict=True):
        client.sendall(moves(location_text(place).encode()))
    (publisher,) = swarm.join([connect("geo-publisher", version=V5)])
    for step in world.steps:
        properties = Properties(user_properties=(("geo-fence", fence_text(step.fence)),))
        event = encode(Publish(TOPIC, PAYLOAD, properties=properties), V5)
        writes = ((clients[step.mover], moves(location_text(step.place).encode())), (publisher, event))
        count = len(step.receivers)
        yield Turn(writes, len(event) * count, count)


def everywhere(swarm: Swarm, world: World) -> Iterator[Turn]:
    """Everything to everybody; where it matters is in the payload."""
    _join(swarm, [TOPIC] * len(world.places), V311)
    (publisher,) = swarm.join([connect("geo-publisher")])
    count = len(world.places)
    for step in world.steps:
        event = publish(TOPIC, fence_text(step.fence).encode() + PAYLOAD)
        yield Turn(((publisher, event),), len(event) * count, count)


def celled(swarm: Swarm, world: World) -> Iterator[Turn]:
    """A topic per geohash cell."""
    precision = best_precision(world)
    cells = [cell_of(place, precision) for place in world.places]
    members: dict[str, int] = {}
    for cell in cells:
        members[cell] = members.get(cell, 0) + 1
    clients = _join(swarm, [f"{TOPIC}/{cell}" for cell in cells], V311)
    (publisher,) = swarm.join([connect("geo-publisher")])
    for step in world.steps:
        writes: list[tuple[socket.socket, bytes]] = []
        received = 0
        old, new = cells[step.mover], cell_of(step.place, precision)
        if old != new:
            cells[step.mover] = new
            members[old] -= 1
            members[new] = members.get(new, 0) + 1
            change = subscribe(f"{TOPIC}/{new}") + encode(Unsubscribe(2, (f"{TOPIC}/{old}",)), V311)
            writes.append((clients[step.mover], change))
            received += SUBACK_SIZE + UNSUBACK_SIZE
        payload = fence_text(step.fence).encode() + PAYLOAD
        events = {cell: publish(f"{TOPIC}/{cell}", payload) for cell in cells_over(step.fence, precision)}
        writes.append((publisher, b"".join(events.values())))
        deliveries = sum(members.get(cell, 0) for cell in events)
        received += sum(members.get(cell, 0) * len(event) for cell, event in events.items())
        yield Turn(tuple(writes), received, deliveries)


def _join(swarm: Swarm, topics: Sequence[str], version: int) -> list[socket.socket]:
    clients = swarm.join([connect(f"geo-{i}", version=version) for i in range(len(topics))])
    swarm.ask(clients, [subscribe(topic, version=version) for topic in topics], 0x90)
    swarm.watch(clients)
    return clients
