"""Writes down what clients do and see, with the time, and what was wrong with the run at what time.

It judges only what needs no context: a session that is there although it ended, or is not although it was kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from geomq.sim.virtual.records import (
    INFINITY,
    KEEP_ALIVE_S,
    Circle,
    Client,
    Connection,
    Event,
    Held,
    Place,
    Receipt,
    Stay,
    Wish,
)

SETTLE_S: Final = 3.0
"""After so long without trouble everybody knows what a broker has confirmed."""
HEAL_S: Final = 16.0
"""And after so long once all trouble has ended."""
NOTICE_S: Final = 1.5 * KEEP_ALIVE_S
"""After so long a broker notices that a connection is gone of which it hears nothing."""
CLOCK_S: Final = 4.0
"""By so much the clocks of brokers may be wrong, in sum."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which, and how."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Ledger:
    """One run. `note` gets a line for each entry, for people to read."""

    def __init__(
        self, now: Callable[[], float], note: Callable[[str], object], *, refuses: bool, reroutes: bool
    ) -> None:
        self.events: dict[str, Event] = {}
        self.clients: dict[str, Client] = {}
        self.violations: list[Violation] = []
        self.wills: dict[str, tuple[str, float]] = {}
        """Those that must be published: their topic, and when their client was gone."""
        self.trouble_from_s = INFINITY
        self.trouble_until_s = INFINITY
        self.refuses = refuses
        """Whether clients are turned away as long as their session cannot be found, so that none ever gets lost."""
        self.reroutes = reroutes
        """Whether events look for another way when something is broken, so that later ones may come first."""
        self._changes: list[tuple[float, float]] = []
        """From when until when the federation or its groups changed."""
        self._now = now
        self._note = note

    # The run.

    def client(self, name: str, *, kept: bool, expiry_s: int) -> None:
        self.clients[name] = Client(name, kept, expiry_s)

    def trouble_begins(self) -> None:
        self.trouble_from_s = self._now()
        self._note("trouble begins")

    def trouble_ends(self) -> None:
        self.trouble_until_s = self._now()
        self._note("trouble ends")

    def settled(self, confirmed_s: float | None) -> float:
        """From when on everybody knows what was confirmed then."""
        if confirmed_s is None:
            return INFINITY
        if confirmed_s + SETTLE_S <= self.trouble_from_s or confirmed_s > self.trouble_until_s + HEAL_S:
            return confirmed_s + SETTLE_S
        return self.trouble_until_s + HEAL_S + SETTLE_S

    def federation_changes(self) -> None:
        """Another description, and all routes with it."""
        self._changes.append((self._now(), self._now() + HEAL_S))

    def groups_changed(self, since_s: float) -> None:
        """Some time since then brokers found together in other groups."""
        self._changes.append((since_s, self._now() + SETTLE_S))

    def in_change(self, at_s: float) -> bool:
        """Whether events may go another way than those before them."""
        return any(from_s <= at_s <= until_s for from_s, until_s in self._changes)

    def in_trouble(self, at_s: float) -> bool:
        return self.trouble_from_s <= at_s <= self.trouble_until_s + HEAL_S

    def fault(self, text: str, kind: str = "fault") -> None:
        self._note(f"FAULT {text}")
        self.violations.append(Violation(kind, text))

    # Publishing.

    def publishing(
        self,
        event: str,
        publisher: str,
        topic: str,
        *,
        qos: int,
        retain: bool,
        fence: Circle | None,
        expiry_s: int | None,
        deletes: bool,
    ) -> None:
        number = len(self.events)
        self.events[event] = Event(event, publisher, topic, qos, retain, fence, expiry_s, deletes, number)

    def sent(self, event: str, broker: str, place: Place | None) -> None:
        found = self.events.get(event)
        if found is not None:
            found.sent_s = min(found.sent_s, self._now())
            found.sends += 1
            found.brokers.add(broker)
            found.places.add(place)
            self._note(f"{event} sent to {broker}: {found.topic} qos {found.qos}{', again' * (found.sends > 1)}")

    def acknowledged(self, event: str) -> None:
        found = self.events.get(event)
        if found is not None and found.acknowledged_s is None:
            found.acknowledged_s = self._now()
            self._note(f"{event} acknowledged")

    def declined(self, event: str, reason: str) -> None:
        found = self.events.get(event)
        if found is not None:
            found.declined = reason
            self._note(f"{event} declined: {reason}")

    def ambiguous(self, event: str) -> None:
        found = self.events.get(event)
        if found is not None:
            found.ambiguous = True

    # Wanting and being.

    def asked(self, client: str, wish: Wish) -> None:
        known = self.clients[client]
        fence = "" if wish.fence is None else f" in {wish.fence.text}"
        self._note(
            f"{client} {'wants' if wish.wanted else 'no longer wants'} {wish.topic_filter} qos {wish.qos}{fence}"
        )
        if wish.wanted:
            known.wishes.append(Held(wish, self._now()))
            return
        for held in known.wishes:
            if held.wish.topic_filter == wish.topic_filter and held.taken_back_s is None:
                held.taken_back_s = self._now()

    def granted(self, client: str, wish: Wish, *, granted: bool) -> None:
        known = self.clients[client]
        if not granted:
            self._note(f"{client} may not have {wish.topic_filter}")
            return
        for held in known.wishes:
            if held.wish.topic_filter != wish.topic_filter:
                continue
            if wish.wanted and held.granted_s is None:
                held.granted_s = self._now()
            elif not wish.wanted and held.taken_back_s is not None and held.gone_s is None:
                held.gone_s = self._now()

    def moving(self, client: str, place: Place) -> None:
        known = self.clients[client]
        known.moves = known.moves or (bool(known.stays) and known.stays[-1].place != place)
        known.stays.append(Stay(place, self._now()))
        self._note(f"{client} goes to {place.text}")

    def moved(self, client: str, place: Place) -> None:
        """A broker knows where the client is."""
        stays = self.clients[client].stays
        if not stays or stays[-1].place != place:
            stays.append(Stay(place, self._now()))
        for stay in stays:
            if stay.place == place and stay.confirmed_s is None:
                stay.confirmed_s = self._now()

    # Connections and sessions.

    def tried(self, client: str) -> None:
        """A client gave up a connection before it was let in; its broker may have let it in."""
        self.clients[client].tried_s = self._now()

    def admitted(self, client: str, broker: str, number: int, *, present: bool, expected: bool) -> None:
        known, now = self.clients[client], self._now()
        self._note(f"{client} is let in by {broker}, session {'present' if present else 'new'}")
        ends = [now if each.closed_s is None else each.closed_s for each in known.connections]
        away_s = now - max(ends, default=now)
        known.connections.append(Connection(broker, number, now))
        if expected and away_s > known.expiry_s - CLOCK_S:
            unnoticed_s = NOTICE_S if self.in_trouble(now - away_s) else 0.0
            if present and now - max(known.tried_s, now - away_s) > known.expiry_s + unnoticed_s + CLOCK_S:
                self.fault(f"{client} found its session after {away_s:.1f} s, of {known.expiry_s} granted", "session")
            elif not present:
                self._close_wishes(known, now - away_s)
            return
        if present and not expected:
            self.fault(f"{client} found a session at {broker} although it has none", "session")
        if expected and not present:
            known.anew_s.append(now)
            used = any(held.granted_s is not None and held.gone_s is None for held in known.wishes)
            if not self.in_trouble(now) or (self.refuses and used):  # with nothing in it, a crash may take it
                self.fault(f"{client} did not find its session at {broker}", "session")

    def refused(self, client: str, broker: str, reason: str) -> None:
        self._note(f"{client} is turned away by {broker}: {reason}")

    def left(self, client: str, number: int) -> None:
        for each in self.clients[client].connections:
            if each.number == number:
                each.said_goodbye = True
        self._note(f"{client} says goodbye")

    def lost(self, client: str, number: int) -> None:
        known, now = self.clients[client], self._now()
        for each in known.connections:
            if each.number == number and each.closed_s is None:
                each.closed_s = now
        self._note(f"{client} has lost its connection")
        if not known.kept:
            self._close_wishes(known, now)

    def ended(self, client: str) -> None:
        """The client ended its session."""
        known = self.clients[client]
        known.ended_s = self._now()
        self._note(f"{client} has ended its session")
        self._close_wishes(known, self._now())

    def _close_wishes(self, client: Client, since_s: float) -> None:
        now = self._now()
        for held in client.wishes:
            held.taken_back_s = since_s if held.taken_back_s is None else held.taken_back_s
            held.gone_s = now if held.gone_s is None else held.gone_s

    # Getting.

    def received(
        self, client: str, event: str, topic: str, *, qos: int, dup: bool, retain: bool, connection: int
    ) -> None:
        self.clients[client].receipts.append(Receipt(event, topic, qos, dup, retain, connection, self._now()))
        marks = f"{' dup' * dup}{' retained' * retain}"
        self._note(f"{client} gets {event or 'nothing'} on {topic} qos {qos}{marks}")
