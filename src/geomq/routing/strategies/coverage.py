"""Coverage: a broker's area plus where its roaming clients are.

A client may be served by a broker outside whose area it is. The broker then announces the cells of one degree in
which it has such clients and relies on that only once every peer has confirmed. Until then the owner of the area the
client is in helps: it holds the client's subscriptions as a guest's and matches the client's events. What both find
is delivered once, because deliveries are recognised by event id. So nothing is missed while a client roams.
"""

from typing import ClassVar, Self

from geomq.geo import Box, Fence, Location
from geomq.routing.core.keeps import Drop, Put, Rules, Table
from geomq.routing.core.messages import (
    OF_EVENTS,
    CoverageChanged,
    CoverageConfirmed,
    DeliverEvent,
    ForwardEvent,
    Message,
    MessageKind,
    Messages,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, Match, Subscriber
from geomq.routing.core.plan import Plan
from geomq.routing.core.strategy import ClientState
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.rendezvous import RendezvousStrategy, Replicas

CELLS_MAX = 256
GUESTS = Table("g")


def cell_of(location: Location) -> int:
    """The one-degree cell a location is in."""
    return min(int(location.lat + 90), 179) * 360 + min(int(location.lon + 180), 359)


def cell_box(cell: int) -> Box:
    row, column = divmod(cell, 360)
    return Box(row - 90.0, row - 89.0, column - 180.0, column - 179.0)


class PutGuest(Message, frozen=True):
    """A roaming client of the sender is in the receiver's area: match this subscription for it."""

    wire_id: ClassVar[int] = 10
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Put(GUESTS, by=("client", "topic_filter")),)
    client: ClientId
    topic_filter: str
    fence: Fence | None
    location: Location | None


class DropGuest(Message, frozen=True):
    """The sender's client needs the receiver no longer."""

    wire_id: ClassVar[int] = 11
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Drop(GUESTS, by=("client",)),)
    client: ClientId


class CoverageStrategy(RendezvousStrategy):
    """A rendezvous strategy that chooses rendezvous by what fences and coverages meet."""

    messages: ClassVar[Messages] = (CoverageChanged, CoverageConfirmed, PutGuest, DropGuest)

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self.guests = Replicas()
        self._roaming: dict[ClientId, int] = {}
        """The cell of each own client that is outside the area."""
        self._cells: dict[int, int] = {}
        """Those cells, each with the version it was announced in."""
        self._crowds: dict[int, int] = {}
        """How many roaming clients each cell has."""
        self._hosts: dict[ClientId, BrokerId] = {}
        self._version = 0
        self._confirmed: dict[BrokerId, int] = {}
        self._confirmations = 0
        self._peer_cells: dict[BrokerId, tuple[int, ...] | None] = {}

    def meeting(self, fence: Fence | None) -> tuple[BrokerId, ...]:
        """The brokers whose coverage meets the fence, in federation order."""
        touched = self.federation.touched(fence)
        if fence is None or not (self._peer_cells or self._cells):
            return touched
        return tuple(b for b in self.federation.ids if b in touched or self._roams_into(b, fence))

    def _roams_into(self, broker: BrokerId, fence: Fence) -> bool:
        cells = tuple(self._cells) if broker == self.me else self._peer_cells.get(broker, ())
        return cells is None or any(fence.meets_box(cell_box(cell)) for cell in cells)

    def guest_host(self, client: ClientId) -> BrokerId | None:
        """The broker that helps while a roaming client is not yet covered; None if no help is needed."""
        cell = self._roaming.get(client)
        if cell is None or self._is_confirmed(self._cells[cell]):
            return None
        location = self.clients[client].location
        host = None if location is None else self.federation.owner(location)
        return None if host == self.me else host

    def _is_confirmed(self, version: int) -> bool:
        return all(self._confirmed.get(peer, 0) >= version for peer in self.federation.ids if peer != self.me)

    def published(self, event: Event, *, now: float) -> None:
        super().published(event, now=now)
        host = self.guest_host(event.publisher)
        if host is not None and host not in self.event_targets(event):
            self.send(host, ForwardEvent(event))

    def match_here(self, event: Event) -> None:
        super().match_here(event)
        if not self.reaches_all(event):
            for home, matches in self.guests.match(event).items():
                self.send(home, DeliverEvent(event, matches))

    def reaches_all(self, event: Event) -> bool:
        """Whether every broker gets the event in any case: by another way, it might overtake an older one."""
        return False

    def plan(self, topic: str) -> Plan | None:
        """None while guests are helped with, here or elsewhere: then who publishes makes a difference."""
        return None if self._helping() else super().plan(topic)

    def plan_forwarded(self, topic: str, origin: BrokerId) -> tuple[Match, ...] | None:
        return None if self._helping() else super().plan_forwarded(topic, origin)

    def _helping(self) -> bool:
        return bool(len(self.guests) or self._hosts) or not all(map(self._is_confirmed, self._cells.values()))

    def plans_since(self) -> int:
        return super().plans_since() + self.guests.version + self._version + self._confirmations

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        super().moved(client, location, now=now)
        self._locate(client, location)

    def _locate(self, client: ClientId, location: Location | None) -> None:
        """Find out whether an own client roams, and arrange for what that needs."""
        outside = location is not None and self.federation.owner(location) != self.me
        self._roam(client, cell_of(location) if location is not None and outside else None)
        self._host(client)

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        super().subscribed(client, topic_filter, fence, now=now)
        host = self._hosts.get(client)
        if host is not None:
            self.send(host, PutGuest(client, topic_filter, fence, self.clients[client].location))
        else:
            self._host(client)

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        super().unsubscribed(client, topic_filter, now=now)
        if client in self._hosts:
            self._unhost(client)
            self._host(client)

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        super().gone(client, state, now=now)
        self._unhost(client)
        self._roam(client, None)

    def _roam(self, client: ClientId, cell: int | None) -> None:
        """Note the cell outside the area in which an own client is; notify the peers if the coverage changed."""
        before = self._roaming.get(client)
        if before == cell:
            return
        changed = False
        if before is not None:
            del self._roaming[client]
            self._crowds[before] -= 1
            if not self._crowds[before]:
                del self._crowds[before], self._cells[before]
                changed = True
        if cell is not None:
            self._roaming[client] = cell
            self._crowds[cell] = self._crowds.get(cell, 0) + 1
            if cell not in self._cells:
                self._cells[cell] = self._version + 1
                changed = True
        if changed:
            self._version += 1
            self.replace_all()
            for peer in self.federation.ids:
                if peer != self.me:
                    self.send(peer, self._announcement())

    def _announcement(self) -> CoverageChanged:
        return CoverageChanged(self._version, tuple(self._cells) if len(self._cells) <= CELLS_MAX else None)

    def _host(self, client: ClientId) -> None:
        """Let the right broker help with a roaming client's subscriptions, or nobody."""
        state = self.clients[client]
        host = self.guest_host(client) if state.subscriptions else None
        if self._hosts.get(client) not in (None, host):
            self._unhost(client)
        if host is not None:
            self._hosts[client] = host
            for topic_filter, fence in state.subscriptions.items():
                self.send(host, PutGuest(client, topic_filter, fence, state.location))

    def _unhost(self, client: ClientId) -> None:
        host = self._hosts.pop(client, None)
        if host is not None and host in self.federation.position:
            self.send(host, DropGuest(client))

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        if isinstance(message, OF_EVENTS):
            super().said(peer, message, now=now)
            return
        match message:
            case CoverageChanged(version=version, cells=cells):
                self._peer_cells[peer] = cells
                if cells == ():
                    del self._peer_cells[peer]
                self.replace_all()
                self.send(peer, CoverageConfirmed(version))
            case CoverageConfirmed(version=version):
                self._confirmed[peer] = max(version, self._confirmed.get(peer, 0))
                self._confirmations += 1
                for client in tuple(self._hosts):
                    if self.guest_host(client) is None:
                        self._unhost(client)
            case PutGuest(client=client, topic_filter=topic_filter, fence=fence, location=location):
                self.guests.put(Subscriber(peer, client), topic_filter, fence, location)
            case DropGuest(client=client):
                self.guests.drop_subscriber(Subscriber(peer, client))
            case SyncBegin():
                self.guests.begin(peer)
                super().said(peer, message, now=now)
            case SyncEnd():
                self.guests.end(peer)
                super().said(peer, message, now=now)
            case _:
                super().said(peer, message, now=now)

    def sync_extras(self, peer: BrokerId) -> None:
        """What to send a peer that may have forgotten us besides subscriptions."""
        self._confirmed.pop(peer, None)
        self._confirmations += 1
        if self._version:
            self.send(peer, self._announcement())
        for client, host in tuple(self._hosts.items()):
            if host == peer:
                self._host(client)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        for broker in before.ids:
            if broker not in self.federation.position:
                self.guests.drop_home(broker)
                self._peer_cells.pop(broker, None)
                self._confirmed.pop(broker, None)
        super().federation_changed(before, now=now)
        for client, state in self.clients.items():
            self._locate(client, state.location)

    def inherit(self, before: Self) -> None:
        super().inherit(before)
        self.guests, self._peer_cells = before.guests, before._peer_cells

    def state_size(self) -> int:
        return super().state_size() + len(self.guests) + len(self._roaming) + len(self._hosts)
