"""The order of events while a client's session moves: a former home's come first, then those that came by themselves.

A client that goes from one broker to another leaves a trail: one visit at each broker, as often as it stayed there. A
visit begins at a gate, through which the former home sends what still matches there, and ends at an exit, through which
this broker does the same for the next. Gate and exit of one hand-over have the same token.

What comes through a gate goes on at once: through the exit of the same visit, or to the client if it is still here.
What comes by itself is newer than what may still be on its way through the gate: it is held until the former home says
that it has sent all, which it does once it no longer serves the client and all earlier gates of its own are shut. Held
and sent after the client, an event counts once. All of this is kept on disk.
"""

from collections.abc import Callable, Iterator
from math import ceil, inf

import msgspec

from geomq.errors import GeomqError
from geomq.geo import Fence, Location
from geomq.mqtt.session.backlog import Backlog
from geomq.routing.core.actions import Action, ForgetNote, KeepNote
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.sizes import event_bytes
from geomq.routing.core.wire_forms import EVENT
from geomq.routing.sessions.hand_overs import Notes
from geomq.routing.sessions.rounds import Drain, Drains

TRAIL, HELD = "trail", "held"
"""What is on disk: the visits of a client, and the events held for it in the order they came."""
ORDER_MS = 30_000.0
"""How long an event is held at most; after that its client gets it, in whatever order."""
BRIEF_MS = 1_000.0
"""How long, if the former home cannot know that it matters where the client is now."""
STEP_MS = 100.0
VISITS_MAX = 64
"""Visits of one client that are remembered; more are only open if it comes and goes while some broker is away."""
HELD_MAX = 10_000
"""Events held for one visit."""
HELD_BYTES_MAX = 64 << 20
"""Bytes of the events held for all visits together."""


class Held(msgspec.Struct):
    """An event that waits, until `due` at most, and what it is kept under; `inside` if its client was here then."""

    event: Event
    matches: tuple[Match, ...]
    inside: bool
    due: float
    number: int


class Visit(msgspec.Struct, array_like=True):
    """One stay of a client at this broker. Token 0 stands for no gate, or for no exit yet."""

    gate: int = 0
    source: BrokerId = BrokerId("")
    is_open: bool = False
    """Whether the former home may still send something through the gate."""
    exit: int = 0
    to: BrokerId = BrokerId("")
    is_over: bool = False
    """Whether this broker no longer serves the client on this visit."""


class Stay(msgspec.Struct):
    """A visit and what is known of it beside its record on disk."""

    visit: Visit
    opened: float
    drain: Drain | None = None
    """Once the visit is over: when it is past, nothing more that comes by itself can have to go through the exit."""
    held: dict[EventId, Held] = msgspec.field(default_factory=dict)
    is_taken: bool = False
    """Whether the session is here, so that what its client does from now on no former home knows of."""
    place: Location | None = None
    """Where former homes take the client to be."""
    new: set[Match] = msgspec.field(default_factory=set)
    """Subscriptions no former home knows of."""

    def shut(self) -> None:
        self.visit.is_open = False

    def leave(self, exit_: int, to: BrokerId) -> None:
        """The client goes on to another broker, unless it did already."""
        if not self.visit.exit:
            self.visit.exit, self.visit.to = exit_, to

    def end(self, drain: Drain) -> None:
        """This broker no longer serves the client on this visit, but what is on its way here still goes its way."""
        self.visit.is_over, self.drain = True, drain

    @property
    def waits(self) -> bool:
        """Whether something older than what comes by itself may still come through the gate."""
        return self.visit.is_open and not self.visit.is_over

    def patience_ms(self, fence: Fence | None) -> float:
        """How long an event that matters inside a fence is held."""
        is_new_place = self.is_taken and fence is not None and (self.place is None or not fence.contains(self.place))
        return BRIEF_MS if is_new_place else ORDER_MS

    def is_late(self, now: float) -> bool:
        """Whether the former home has been waited for in vain."""
        return any(held.due <= now and self.patience_ms(held.event.fence) == ORDER_MS for held in self.held.values())


class _HeldRecord(msgspec.Struct, array_like=True):
    gate: int
    event: msgspec.Raw
    matches: tuple[Match, ...]
    inside: bool


_visits = msgspec.msgpack.Decoder(list[Visit]).decode
_held = msgspec.msgpack.Decoder(_HeldRecord).decode
_event = msgspec.msgpack.Decoder(EVENT.wire).decode
_encode = msgspec.msgpack.Encoder().encode


class Trails:
    """The trails of all clients that pass this broker, each without what is behind it."""

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._stays: dict[ClientId, list[Stay]] = {}
        self._over: dict[ClientId, None] = {}
        """The clients of which some visit is over."""
        self._number = 0
        self.backlog = Backlog()
        """What is held."""

    def __len__(self) -> int:
        return len(self._stays)

    def load(self, notes: Notes, is_away: Callable[[ClientId], bool | None], drains: Drains, *, now: float) -> None:
        """Begin with what was kept. A client is away (True), here (False) or not known any more (None)."""
        for key, value in notes.get(TRAIL, {}).items():
            client = ClientId(key.decode("utf-8", "surrogatepass"))
            self._stays[client] = [Stay(visit, now) for visit in _visits(value)]
        for key, value in notes.get(HELD, {}).items():
            self._number = max(self._number, int.from_bytes(key[-8:]))
            self._load_held(key, value, now)
        for client, stays in list(self._stays.items()):
            away = is_away(client)
            if away is None and not stays[-1].visit.exit:
                self.end(client)
            for stay in stays:
                if stay.visit.is_over or (stay is stays[-1] and stay.visit.exit and not away):
                    stay.end(drains.begin())
                    self._over[client] = None

    def _load_held(self, key: bytes, value: bytes, now: float) -> None:
        client, record = ClientId(key[:-9].decode("utf-8", "surrogatepass")), _held(value)
        stay = self.through(client, record.gate)
        try:
            event = EVENT.from_wire(_event(record.event))
        except GeomqError:
            stay = None
        if stay is None:
            self._act(ForgetNote(HELD, key))
            return
        stay.held[event.id] = Held(event, record.matches, record.inside, now + ORDER_MS, int.from_bytes(key[-8:]))
        self.backlog.add(event_bytes(event))

    # Where a client is on its way.

    def last(self, client: ClientId) -> Stay | None:
        stays = self._stays.get(client)
        return stays[-1] if stays else None

    def waiting(self, client: ClientId) -> Stay | None:
        """The visit on which a client, here or gone on, waits for what is older."""
        stays = self._stays.get(client, [])
        return next((stay for stay in stays if stay.waits and stay.visit.exit == stays[-1].visit.exit), None)

    def through(self, client: ClientId, gate: int) -> Stay | None:
        """The visit that began at this gate."""
        return next((stay for stay in self._stays.get(client, ()) if gate and stay.visit.gate == gate), None)

    def sources(self, client: ClientId) -> tuple[BrokerId, ...]:
        """The brokers that may still send something after the client."""
        return tuple(dict.fromkeys(s.visit.source for s in self._stays.get(client, ()) if s.visit.is_open))

    def over(self) -> list[ClientId]:
        """Who has visits that are over, and that a round may let go of."""
        return list(self._over)

    def items(self) -> list[tuple[ClientId, Stay]]:
        return [(client, stay) for client, stays in self._stays.items() for stay in stays]

    def enter(self, client: ClientId, gate: int, source: BrokerId, *, now: float) -> None:
        """The client's session came: a visit begins."""
        self._stays.setdefault(client, []).append(Stay(Visit(gate, source, is_open=True), now))
        self._keep(client)

    def taken(self, client: ClientId, place: Location | None) -> None:
        """The session is here, and its client where former homes take it to be."""
        stay = self.last(client)
        if stay is not None:
            stay.is_taken, stay.place = True, place

    def subscribed(self, wish: Match) -> None:
        """A client that is here wants what it did not want before: no former home knows of that."""
        stay = self.last(owner_of(wish.client))
        if stay is not None and stay.is_taken:
            stay.new.add(wish)

    def leave(self, client: ClientId, exit_: int, to: BrokerId, *, now: float) -> None:
        """The client's session was given to another broker."""
        stays = self._stays.setdefault(client, [])
        if not stays or stays[-1].visit.exit:
            stays.append(Stay(Visit(), now))
        for stay in stays:
            stay.leave(exit_, to)
        self._keep(client)

    def come_back(self, client: ClientId, drain: Callable[[], Drain]) -> None:
        """This broker no longer serves a client that left: it is here again, or known everywhere at its new home."""
        for stay in self._stays.get(client, ()):
            if stay.visit.exit and not stay.visit.is_over:
                stay.end(drain())
                self._over[client] = None
        self._keep(client)

    def end(self, client: ClientId) -> list[Held]:
        """The client's session, which is here, ended; what was held for it."""
        stays, held = self._stays.get(client), list[Held]()
        while stays and not stays[-1].visit.exit:
            held = [*self.take_all(client, stays.pop()), *held]
        self._keep(client)
        return held

    def shut(self, client: ClientId, stay: Stay) -> list[Held]:
        """The former home has sent all, or is no longer waited for; what was held, in order."""
        stay.shut()
        self._keep(client)
        return self.take_all(client, stay)

    def passed(self, client: ClientId, is_past: Callable[[Drain], bool]) -> Iterator[tuple[int, BrokerId]]:
        """Forget the visits through which nothing more can come: their exits, and who waits there."""
        stays = self._stays.get(client, [])
        while stays and not stays[0].visit.is_open:
            visit = stays[0].visit
            if visit.exit and ((drain := stays[0].drain) is None or not is_past(drain)):
                break
            del stays[0]
            if visit.exit and all(stay.visit.exit != visit.exit for stay in stays):
                yield visit.exit, visit.to
            self._keep(client)

    def _keep(self, client: ClientId) -> None:
        stays = self._stays.get(client)
        if client in self._over and not any(stay.visit.is_over for stay in stays or ()):
            del self._over[client]
        if stays:
            self._act(KeepNote(TRAIL, key_of(client), _encode([stay.visit for stay in stays])))
        elif stays is not None:
            del self._stays[client]
            self._act(ForgetNote(TRAIL, key_of(client)))

    def oldest_of_many(self, client: ClientId) -> Stay | None:
        """The first visit of a client that has too many."""
        stays = self._stays.get(client, [])
        return stays[0] if len(stays) > VISITS_MAX else None

    def drop_oldest(self, client: ClientId) -> tuple[int, BrokerId]:
        """Forget the first visit, whose gate is shut, whatever may still come: its exit, and who waits there."""
        visit = self._stays[client].pop(0).visit
        self._keep(client)
        return visit.exit, visit.to

    # Events.

    def hold(self, client: ClientId, stay: Stay, event: Event, matches: tuple[Match, ...], *, now: float) -> bool:
        """Keep an event until the gate is shut; False if there is no room."""
        same = stay.held.get(event.id)
        if same is not None:
            same.matches = tuple(dict.fromkeys((*same.matches, *matches)))
            self._keep_held(client, stay, same)
            return True
        size = event_bytes(event)
        if len(stay.held) >= HELD_MAX or self.backlog.bytes + size > HELD_BYTES_MAX:
            return False
        self._number += 1
        self.backlog.add(size)
        inside, due = not stay.visit.exit, _in_step(now + stay.patience_ms(event.fence))
        held = stay.held[event.id] = Held(event, matches, inside, due, self._number)
        self._keep_held(client, stay, held)
        return True

    def _keep_held(self, client: ClientId, stay: Stay, held: Held) -> None:
        event = msgspec.Raw(_encode(EVENT.to_wire(held.event)))
        record = _HeldRecord(stay.visit.gate, event, held.matches, held.inside)
        self._act(KeepNote(HELD, _held_key(client, held.number), _encode(record)))

    def take(self, client: ClientId, stay: Stay, held: Held) -> Held:
        """It need not be held any longer."""
        del stay.held[held.event.id]
        self.backlog.remove(event_bytes(held.event))
        self._act(ForgetNote(HELD, _held_key(client, held.number)))
        return held

    def take_all(self, client: ClientId, stay: Stay) -> list[Held]:
        return [self.take(client, stay, held) for held in list(stay.held.values())]

    def take_due(self, client: ClientId, stay: Stay, *, now: float) -> list[Held]:
        return [self.take(client, stay, held) for held in list(stay.held.values()) if held.due <= now]

    def next_due(self) -> float:
        """When something held is due."""
        return min((h.due for stays in self._stays.values() for s in stays for h in s.held.values()), default=inf)

    def take_older(self, client: ClientId, stay: Stay, event: Event) -> list[Held]:
        """What its publisher sent on the same topic before: the former home, which sends in order, never had it."""
        return [self.take(client, stay, held) for held in list(stay.held.values()) if _is_older(held.event, event)]


def _is_older(one: Event, other: Event) -> bool:
    """Whether it was published before on the same topic. Of two starts of a broker only its clock knows the order."""
    if one.topic != other.topic or one.publisher != other.publisher or one.id.origin != other.id.origin:
        return False
    if one.id.epoch != other.id.epoch:
        return one.at_ms < other.at_ms
    return one.id.sequence < other.id.sequence


def _in_step(due: float) -> float:
    """A little later, so that much that is held is due at the same time."""
    return ceil(due / STEP_MS) * STEP_MS


def _held_key(client: ClientId, number: int) -> bytes:
    return key_of(client) + b"\0" + number.to_bytes(8)


def key_of(client: ClientId) -> bytes:
    return client.encode("utf-8", "surrogatepass")


def owner_of(key: ClientId) -> ClientId:
    """The client under its own id, which may have other keys."""
    return ClientId(key.partition("\0")[0])


def is_client(key: ClientId) -> bool:
    """Whether this is a client under its own id, and not one of its other keys."""
    return "\0" not in key
