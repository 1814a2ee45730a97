"""The sessions of every simulated broker, as its driver keeps them: on a disk that survives crashes.

A session is a place and subscriptions; what is delivered to it counts as received. Which broker a client is connected
to is known here, too, and ends with a crash.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from geomq.geo import Fence, Location
from geomq.routing.core.actions import (
    EndSession,
    ForgetNote,
    GiveSession,
    KeepNote,
    LetClientIn,
    SessionAction,
    TakeSession,
    TurnClientAway,
    Why,
)
from geomq.routing.core.events import (
    ClientArrived,
    ClientGone,
    ClientMoved,
    ClientSubscribed,
    RoutingEvent,
    SessionPacked,
    SessionSought,
    SessionTaken,
)
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.node import Node
from geomq.routing.sessions.searches import OwnSession

SKEW_MS = 30_000
WAIT_MS = 2_000.0


@dataclass(frozen=True, slots=True)
class KeptSession:
    """One session; `had` is what its client had when it was packed."""

    location: Location | None
    subscriptions: Mapping[str, Fence | None]
    since_ms: int = 0
    had: tuple[EventId, ...] = ()


@dataclass
class Disk:
    """What one broker has on disk of sessions; routing asks it which there are."""

    sessions: dict[ClientId, KeptSession] = field(default_factory=dict)
    notes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)

    def find(self, client: ClientId) -> OwnSession | None:
        found = self.sessions.get(client)
        return None if found is None else OwnSession(None, found.since_ms)

    def may_take(self, client: ClientId, user: str | None) -> bool:
        return True


class SessionDisks:
    """All sessions, those on their way, and where clients are connected."""

    def __init__(self, seed: int, *, refuses: bool = True) -> None:
        self._dice = random.Random(f"{seed}/sessions")
        self._refuses = refuses
        self.disks: dict[BrokerId, Disk] = {}
        self.at: dict[ClientId, BrokerId] = {}
        """Where clients are connected."""
        self.new = 0
        """How often a client was let in without a session."""
        self.given = 0
        self.turned_away: list[tuple[ClientId, Why]] = []
        self._skews: dict[BrokerId, int] = {}
        self._attempts: dict[ClientId, tuple[int, int]] = {}
        """The latest connection of each client, and when that was by the clock of its broker."""
        self._count = 0
        self._packed: list[KeptSession] = []

    def load(self, node: Node, now: float) -> None:
        """A broker starts, perhaps again: its clients have lost their connections."""
        disk = self.disks.setdefault(node.me, Disk())
        self._skews.setdefault(node.me, self._dice.randrange(SKEW_MS))
        for client in [client for client, broker in self.at.items() if broker == node.me]:
            del self.at[client]
        secret = node.session_searches.load(disk, disk.notes, self._dice.randbytes, now=now)
        if secret is not None:
            self.note(node.me, secret)

    def begin(self, broker: BrokerId, client: ClientId, kept: KeptSession) -> None:
        """A client has a session, and is connected."""
        self.disks[broker].sessions[client] = kept
        self.at[client] = broker

    def connect(self, broker: BrokerId, client: ClientId, now_ms: int) -> SessionSought:
        """A client goes to a broker."""
        self._count += 1
        wall_ms = now_ms + self._skews[broker]
        self._attempts[client] = self._count, wall_ms
        self.at.pop(client, None)
        return SessionSought(client, self._count, None, False, wall_ms, WAIT_MS, self._refuses)

    def note(self, broker: BrokerId, action: KeepNote | ForgetNote) -> None:
        notes = self.disks[broker].notes.setdefault(action.kind, {})
        if isinstance(action, KeepNote):
            notes[action.key] = action.value
        else:
            notes.pop(action.key, None)

    def carry_out(self, node: Node, action: SessionAction) -> list[RoutingEvent]:
        """Do what is asked for; what the node is to be told then."""
        sessions = self.disks[node.me].sessions
        match action:
            case LetClientIn(client=client, attempt=attempt) if self._attempts[client][0] == attempt:
                self.new += client not in sessions
                kept = sessions.get(client, KeptSession(None, {}))
                sessions[client] = replace(kept, since_ms=self._attempts[client][1])
                self.at[client] = node.me
            case TurnClientAway(client=client, why=why):
                self.turned_away.append((client, why))
            case EndSession(client=client):
                sessions.pop(client, None)
                return [ClientGone(client)]
            case GiveSession():
                return [self._pack(node, action)]
            case TakeSession(client=client, data=data):
                return self._unpack(node, client, self._packed[int(data)])
        return []

    def _pack(self, node: Node, action: GiveSession) -> SessionPacked:
        client, sessions = action.client, self.disks[node.me].sessions
        kept = sessions.pop(client)
        if self.at.get(client) == node.me:
            del self.at[client]
        had = node.had_by([client])
        self._packed.append(KeptSession(kept.location, kept.subscriptions, kept.since_ms, had))
        self.given += 1
        number = f"{len(self._packed) - 1:04}".encode()
        return SessionPacked(client, action.to, action.token, (number[:2], number[2:]), (client,))

    def _unpack(self, node: Node, client: ClientId, kept: KeptSession) -> list[RoutingEvent]:
        events: list[RoutingEvent] = [ClientArrived(client, kept.had)]
        sessions = self.disks[node.me].sessions
        if client not in sessions:
            sessions[client] = kept
            events.append(ClientMoved(client, kept.location))
            wishes = kept.subscriptions.items()
            events += [ClientSubscribed(client, topic_filter, fence) for topic_filter, fence in wishes]
        return [*events, SessionTaken(client)]
