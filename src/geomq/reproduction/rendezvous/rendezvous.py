"""Rendezvous in cells: topics hashed to places, the nearest of them tried, longer paths pruned, all state soft.

Owns the protocol between publishers, subscribers and rendezvous cells, and names every message it costs. Messages are
answered at once; how they travel is routing's. Time comes in as `now`, in milliseconds.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.cells import Cells
from geomq.reproduction.rendezvous.routing import route

RENDEZVOUS_MAX = 64
ProtocolMessage = Literal[
    "advertisement",
    "subscription",
    "forwarded subscription",
    "notification to rendezvous",
    "notification to subscriber",
    "prune",
    "forwarded prune",
]
_FROM_RENDEZVOUS = ("forwarded subscription", "notification to subscriber", "forwarded prune")


def places_of(topic: str, count: int) -> NDArray[np.float64]:
    """The first `count` places of a topic, uniform in the unit square; the number is hashed with the name."""
    if not 1 <= count <= RENDEZVOUS_MAX:
        raise UsageError(f"a topic has 1 to {RENDEZVOUS_MAX} rendezvous, not {count}")
    digests = (hashlib.blake2b(f"{number}/{topic}".encode(), digest_size=8).digest() for number in range(count))
    return np.frombuffer(b"".join(digests), ">u4").reshape(count, 2) / 2.0**32


def by_distance(places: NDArray[np.float64], here: NDArray[np.float64]) -> NDArray[np.int64]:
    """The numbers of the places, the physically closest to a point first; a row for each of several points."""
    return np.argsort(((places - here[..., None, :]) ** 2).sum(axis=-1), axis=-1, kind="stable")


class Sent(NamedTuple):
    """One message that was routed between a node and a rendezvous cell."""

    kind: ProtocolMessage
    node: int
    rendezvous: int
    hops: int


class Notified(NamedTuple):
    """What one notification cost and whom it reached, with the hops of the best path to each."""

    sent: list[Sent]
    hops: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How many rendezvous a topic has, how many of them a subscriber tries, and how long unrepeated state lasts."""

    rendezvous: int = 8
    nearest: int = 2
    expire_ms: float = 180_000

    def __post_init__(self) -> None:
        if not 1 <= self.nearest <= self.rendezvous <= RENDEZVOUS_MAX:
            raise UsageError(f"need 1 <= nearest <= rendezvous <= {RENDEZVOUS_MAX}")
        if not self.expire_ms > 0:
            raise UsageError("the time after which state expires must be above 0")


@dataclass(slots=True)
class _Meeting:
    """What a rendezvous cell knows of one topic."""

    publishers: dict[int, float] = field(default_factory=dict)
    subscribers: dict[int, float] = field(default_factory=dict)
    pruned: set[tuple[int, int]] = field(default_factory=set)
    """(publisher, subscriber) where the subscriber has a shorter path."""
    asked: set[int] = field(default_factory=set)
    """Publishers that were asked to notify this cell."""

    def wanted(self, publisher: int) -> bool:
        return any((publisher, subscriber) not in self.pruned for subscriber in self.subscribers)


class Rendezvous:
    """The protocol of one network; nodes are numbers into `points`."""

    def __init__(self, cells: Cells, points: NDArray[np.float64], options: Options) -> None:
        self.options = options
        self.points = points
        self._cells = cells
        self._meetings: dict[tuple[int, str], _Meeting] = {}
        self._publishing: dict[tuple[int, str], None] = {}
        self._subscribed: dict[tuple[int, str], frozenset[int]] = {}
        """The rendezvous cells that a subscriber tried last."""

    def rewire(self, cells: Cells, points: NDArray[np.float64]) -> None:
        """Nodes moved, came or went. State stays where it is until its owners repeat it; emptied cells lose theirs."""
        self._cells, self.points = cells, points
        for cell, topic in [key for key in self._meetings if not cells.populated[key[0]]]:
            del self._meetings[cell, topic]

    def advertise(self, node: int, topic: str, *, now: float) -> list[Sent]:
        """Tell all rendezvous of the topic that this node publishes on it."""
        self._publishing[node, topic] = None
        sent = []
        for cell, hops in self._tried(node, topic, self.options.rendezvous).items():
            sent.append(Sent("advertisement", node, cell, hops))
            meeting = self._meetings.setdefault((cell, topic), _Meeting())
            meeting.publishers[node] = now
            sent += self._ask(cell, meeting)
        return sent

    def subscribe(self, node: int, topic: str, *, now: float) -> list[Sent]:
        """Subscribe at the nearest rendezvous of the topic. If these are other cells than last time, all paths to them
        are open again."""
        tried = self._tried(node, topic, self.options.nearest)
        others = self._subscribed.get((node, topic)) != tried.keys()
        self._subscribed[node, topic] = frozenset(tried)
        sent = []
        for cell, hops in tried.items():
            sent.append(Sent("subscription", node, cell, hops))
            meeting = self._meetings.setdefault((cell, topic), _Meeting())
            meeting.subscribers[node] = now
            if others:
                meeting.pruned = {path for path in meeting.pruned if path[1] != node}
            sent += self._ask(cell, meeting)
        return sent

    def publish(self, node: int, topic: str) -> Notified:
        """Notify subscribers through the cells that asked; each keeps its shortest path and prunes the others."""
        if (node, topic) not in self._publishing:
            raise UsageError(f"node {node} has not advertised {topic!r}")
        sent: list[Sent] = []
        paths: dict[int, list[tuple[bool, int, int]]] = {}
        for cell, meeting in self._notified(node, topic):
            here, arrived = self._send("notification to rendezvous", node, cell)
            sent.append(here)
            for subscriber in meeting.subscribers if arrived else ():
                if (node, subscriber) in meeting.pruned:
                    continue
                there, arrived = self._send("notification to subscriber", subscriber, cell)
                sent.append(there)
                if arrived:
                    # A cell that the subscriber no longer tries is about to forget it and must not win.
                    stale = cell not in self._subscribed.get((subscriber, topic), ())
                    paths.setdefault(subscriber, []).append((stale, here.hops + there.hops, cell))
        for subscriber, found in paths.items():
            for _, _, cell in sorted(found)[1:]:
                sent += self._prune(cell, topic, node, subscriber)
        return Notified(sent, {subscriber: min(hops for _, hops, _ in found) for subscriber, found in paths.items()})

    def refresh(self, *, now: float) -> list[Sent]:
        """Everybody repeats advertisements and subscriptions; what nobody repeated in time is forgotten."""
        sent: list[Sent] = []
        for node, topic in tuple(self._publishing):
            sent += self.advertise(node, topic, now=now)
        for node, topic in tuple(self._subscribed):
            sent += self.subscribe(node, topic, now=now)
        for key, meeting in tuple(self._meetings.items()):
            self._expire(meeting, now)
            sent += self._release(key[0], meeting)
            if not meeting.publishers and not meeting.subscribers:
                del self._meetings[key]
        return sent

    def leave(self, node: int) -> None:
        """A node falls silent: nobody is told, its state expires."""
        for parties in (self._publishing, self._subscribed):
            for key in [key for key in parties if key[0] == node]:
                del parties[key]

    def _cell(self, node: int) -> int:
        return int(self._cells.at(self.points[node]))

    def _send(self, kind: ProtocolMessage, node: int, cell: int) -> tuple[Sent, bool]:
        """Route a message between a node and a rendezvous cell; whether it arrived there and not at some home."""
        start, goal = (cell, self._cell(node)) if kind in _FROM_RENDEZVOUS else (self._cell(node), cell)
        found = route(self._cells, start, goal)
        return Sent(kind, node, cell, found.hops), found.end == goal

    def _tried(self, node: int, topic: str, count: int) -> dict[int, int]:
        """The distinct home cells of the topic's places closest to a node, with the hops to each."""
        places = places_of(topic, self.options.rendezvous)
        closest = by_distance(places, self.points[node])[:count]
        routes = [route(self._cells, self._cell(node), int(goal)) for goal in self._cells.at(places[closest])]
        return {found.end: found.hops for found in routes}

    def _notified(self, node: int, topic: str) -> Iterator[tuple[int, _Meeting]]:
        for (cell, of_topic), meeting in self._meetings.items():
            if of_topic == topic and node in meeting.asked:
                yield cell, meeting

    def _ask(self, cell: int, meeting: _Meeting) -> list[Sent]:
        """Forward the first subscription that needs it to each publisher."""
        sent = []
        for publisher in meeting.publishers:
            if publisher not in meeting.asked and meeting.wanted(publisher):
                message, arrived = self._send("forwarded subscription", publisher, cell)
                sent.append(message)
                if arrived:
                    meeting.asked.add(publisher)
        return sent

    def _prune(self, cell: int, topic: str, publisher: int, subscriber: int) -> list[Sent]:
        meeting = self._meetings[cell, topic]
        meeting.pruned.add((publisher, subscriber))
        message, _ = self._send("prune", subscriber, cell)
        return [message, *self._release(cell, meeting)]

    def _release(self, cell: int, meeting: _Meeting) -> list[Sent]:
        """Forward the prune of the last subscriber to each publisher; its advertisement stays."""
        sent = []
        for publisher in sorted(meeting.asked):
            if not meeting.wanted(publisher):
                message, arrived = self._send("forwarded prune", publisher, cell)
                sent.append(message)
                if arrived:
                    meeting.asked.discard(publisher)
        return sent

    def _expire(self, meeting: _Meeting, now: float) -> None:
        for parties in (meeting.publishers, meeting.subscribers):
            for node in [node for node, heard in parties.items() if now - heard > self.options.expire_ms]:
                del parties[node]
        meeting.asked &= meeting.publishers.keys()
        meeting.pruned = {
            (publisher, subscriber)
            for publisher, subscriber in meeting.pruned
            if publisher in meeting.publishers and subscriber in meeting.subscribers
        }
