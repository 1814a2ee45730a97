"""What the routing core asks its driver to do, in the imperative."""

from typing import Literal

import msgspec

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId, Match, Version


class Action(msgspec.Struct, frozen=True):
    """Any output of the routing core."""


class SendToPeer(Action, frozen=True):
    """Send a message over the link to a peer, in order, at least once; `edition` is whose routing it belongs to."""

    peer: BrokerId
    message: Message
    edition: Edition | None = None


class SendOnceFlushed(Action, frozen=True):
    """Send a message to a peer as soon as all that was sent so far, to whomever, has arrived. A newer one to the
    same peer takes its place, and a restart may lose it."""

    peer: BrokerId
    message: Message


class DeliverToClients(Action, frozen=True):
    """Hand an event to own clients. A client with several matches gets it once; which is the session's affair."""

    event: Event
    matches: tuple[Match, ...]


class DeliverToOne(Action, frozen=True):
    """Hand an event to one member of a share group: the first of these own clients that can take it now, else the
    first."""

    event: Event
    share: str
    topic_filter: str
    members: tuple[ClientId, ...]
    asked: tuple[BrokerId, ...] = ()
    """The brokers that were asked to serve the group so far."""


class DropEvent(Action, frozen=True):
    """An event ends here, and why. Nothing is to be done but to count and to trace it."""

    event_id: EventId
    reason: str


class KeepNote(Action, frozen=True):
    """Keep this on disk, in place of what was kept under the same key."""

    kind: str
    key: bytes
    value: bytes


class ForgetNote(Action, frozen=True):
    """What was kept under this key is no longer needed."""

    kind: str
    key: bytes


class StoreRetained(Action, frozen=True):
    """Keep a peer's retained event, or delete its topic's if the payload is empty; then answer with `RetainedStored`.

    If there is no room for it nothing else is to be done. Its id is its version; `user` is its publisher's.
    """

    event: Event
    user: str | None
    published: EventId | None


class SendRetained(Action, frozen=True):
    """Send a peer what is retained of a topic now, as `PutRetained` with this version; nothing means deleted."""

    peer: BrokerId
    topic: str
    version: Version
    published: EventId | None = None


class RefuseRetained(Action, frozen=True):
    """A retained event of an own client stays unknown to the peers, and why. It is to be counted."""

    topic: str
    reason: str


class SessionAction(Action, frozen=True):
    """What is to be done with clients that may have their sessions at other brokers, and with those sessions."""


class LetClientIn(SessionAction, frozen=True):
    """A connection that waited for its session may go on, with the session that is here or a new one.

    `since_ms` is when the client came, None if its session was here all the time.
    """

    client: ClientId
    attempt: int
    since_ms: int | None = None


Why = Literal["connects again", "too many wait", "session missing", "another user's"]


class TurnClientAway(SessionAction, frozen=True):
    """A connection that waited for its session may not go on, and why."""

    client: ClientId
    attempt: int
    why: Why


class EndSession(SessionAction, frozen=True):
    """The client starts anew at another broker: end its connection and its session, if they are here."""

    client: ClientId


class GiveSession(SessionAction, frozen=True):
    """End the client's connection, let go of its session and answer with `SessionPacked`."""

    client: ClientId
    to: BrokerId
    token: int


class TakeSession(SessionAction, frozen=True):
    """A session has come: take it in, merge it with one that is here, and answer with `SessionTaken`.

    The bytes are a peer's: if they are no session nothing else is to be done.
    """

    client: ClientId
    data: bytes
    peer: BrokerId


class RefuseHandOver(SessionAction, frozen=True):
    """A part of a session is not taken from a peer, and why. It is to be logged."""

    peer: BrokerId
    client: ClientId
    reason: str
