"""What will never be delivered: counted by reason and receiver, and logged at a bounded rate with what to do.

Of what is alike there is at most one line in ten seconds, with the number of events and some of the receivers.
"""

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Literal, NamedTuple

from geomq.broker.state.counts import Counts
from geomq.mqtt.session.outcomes import EXPIRED, QUEUE_FULL, TOO_LARGE
from geomq.mqtt.session.session import Session

log = logging.getLogger("geomq.broker")

PAUSE_S = 10.0
NAMES_MAX = 5
"""Receivers that a line names."""

Receiver = Literal["client", "session", "peer", "cloud"]
"""A client whose session ends with its connection, a session that is kept, another broker, the cloud."""


class Reason(Enum):
    """Why events are dropped."""

    QUEUE_FULL = "queue_full"
    SLOW_READER = "slow_reader"
    TOO_LARGE = "too_large"
    EXPIRED = "expired"
    SESSION_ENDED = "session_ended"
    LINK_DOWN = "link_down"
    UNSENDABLE = "unsendable"
    PEER_LEFT = "peer_left"
    PEER_MAY_NOT_READ = "peer_may_not_read"
    PEER_MAY_NOT_WRITE = "peer_may_not_write"
    PEER_MAY_NOT_WRITE_FROM = "peer_may_not_write_from"
    PEER_MAY_NOT_WRITE_INTO = "peer_may_not_write_into"


OF_SESSION = {QUEUE_FULL: Reason.QUEUE_FULL, EXPIRED: Reason.EXPIRED, TOO_LARGE: Reason.TOO_LARGE}

_RAISE = "raise [limits] queue_messages_max or queue_bytes_max, or let the client"
_MORE_RIGHTS = "grant it in [federation] acl_file, or see what the peer lets its clients do"
ADVICE: dict[tuple[Reason, Receiver], str] = {
    (Reason.QUEUE_FULL, "client"): f"{_RAISE} read faster",
    (Reason.QUEUE_FULL, "session"): f"{_RAISE} come sooner",
    (Reason.QUEUE_FULL, "peer"): "see why the peer does not read, or remove it with `geomq peers remove`",
    (Reason.QUEUE_FULL, "cloud"): "see why the cloud is away, or raise [cloud] queue_bytes_max",
    (Reason.SLOW_READER, "client"): "use QoS 1 for what must arrive, or let the client read faster",
    (Reason.SLOW_READER, "session"): "use QoS 1 for what must arrive, or let the client read faster",
    (Reason.TOO_LARGE, "client"): "the client has to accept a larger Maximum Packet Size",
    (Reason.TOO_LARGE, "session"): "the client has to accept a larger Maximum Packet Size",
    (Reason.UNSENDABLE, "peer"): "the strategy has to declare its messages",
    (Reason.UNSENDABLE, "cloud"): "the cloud has to accept larger packets",
    (Reason.PEER_LEFT, "peer"): "let a peer receive what waits for it before it is removed",
    (Reason.PEER_MAY_NOT_WRITE, "peer"): _MORE_RIGHTS,
    (Reason.PEER_MAY_NOT_WRITE_FROM, "peer"): _MORE_RIGHTS,
    (Reason.PEER_MAY_NOT_WRITE_INTO, "peer"): _MORE_RIGHTS,
}
"""What to do. Without advice it is as asked for, and no warning: expiry, sessions that end, QoS 0 for a peer that is
away, events that a peer may not read."""


class Drop(NamedTuple):
    """What is counted together. `peer` is empty where the receiver is a client."""

    reason: Reason
    receiver: Receiver
    peer: str = ""


class _Unlogged:
    """What was dropped since the last line, and for whom."""

    __slots__ = ("events", "names", "next_at")

    def __init__(self) -> None:
        self.events = 0
        self.names: dict[str, None] = {}
        self.next_at = 0.0


class Drops:
    """One per broker. `report` is to be called every second or so."""

    def __init__(self, counts: Counts, *, now_s: Callable[[], float]) -> None:
        self._counts = counts
        self._now_s = now_s
        self._totals: dict[Drop, int] = {}
        self._unlogged: dict[Drop, _Unlogged] = {}

    def of_session(self, session: Session, reason: str) -> None:
        """A message of QoS 1 or 2 will never be sent to the session's client; the session has counted it itself."""
        self._note(Drop(OF_SESSION[reason], _receiver(session)), session.client_id, 1)

    def missed(self, session: Session, reason: Reason, count: int = 1) -> None:
        """Events of QoS 0 that the client will never get."""
        session.miss(count)
        self._note(Drop(reason, _receiver(session)), session.client_id, count)

    def ended(self, session: Session, handed_on: int = 0) -> None:
        """The session is over with all that waited for it, but for what others get in its place."""
        lost = session.pending - handed_on
        if lost:
            self._note(Drop(Reason.SESSION_ENDED, _receiver(session)), session.client_id, lost)

    def for_peer(self, peer: str, reason: Reason, count: int = 1) -> None:
        """Events that a peer will never get from here, or that are refused from it."""
        self._note(Drop(reason, "peer", peer), peer, count)

    def late(self, origin: str) -> None:
        """An event expired on its way from the broker where it was published."""
        self._note(Drop(Reason.EXPIRED, "peer", origin), origin, 1)

    def for_cloud(self, cloud: str, reason: Reason, count: int = 1) -> None:
        """Events that the cloud will never get from here."""
        self._note(Drop(reason, "cloud", cloud), cloud, count)

    def _note(self, drop: Drop, name: str, count: int) -> None:
        self._counts.events_dropped += count
        self._totals[drop] = self._totals.get(drop, 0) + count
        unlogged = self._unlogged.get(drop)
        if unlogged is None:
            unlogged = self._unlogged[drop] = _Unlogged()
        unlogged.events += count
        if len(unlogged.names) <= NAMES_MAX:
            unlogged.names[name] = None

    def report(self, *, finally_: bool = False) -> None:
        """Log what was dropped since the last time, if that is long enough ago, or if this is the end."""
        now = self._now_s()
        for drop, unlogged in self._unlogged.items():
            if unlogged.events and (finally_ or now >= unlogged.next_at):
                _log(drop, unlogged)
                unlogged.events, unlogged.next_at = 0, now + PAUSE_S
                unlogged.names = {}

    def totals(self) -> Iterator[tuple[Drop, int]]:
        """How many events were dropped since the start."""
        return iter(tuple(self._totals.items()))


def _receiver(session: Session) -> Receiver:
    return "session" if session.durable or session.expiry_s else "client"


def _log(drop: Drop, unlogged: _Unlogged) -> None:
    advice = ADVICE.get((drop.reason, drop.receiver))
    names = [*unlogged.names][:NAMES_MAX]
    extra = {"events": unlogged.events, "reason": drop.reason.value, drop.receiver: " ".join(names)}
    if len(unlogged.names) > NAMES_MAX:
        extra["more"] = "yes"
    if advice is not None:
        extra["advice"] = advice
    log.log(logging.INFO if advice is None else logging.WARNING, "events dropped", extra=extra)
