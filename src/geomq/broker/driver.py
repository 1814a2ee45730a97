"""The one loop that feeds the routing node: what happened goes to the node, is traced, what must be kept is kept, and
what the node asks for is carried out.

What clients do, what peers send, links that come and go, and deadlines all take this path. It decides nothing.
Plain events of QoS 0 bypass it along the plans that the node gave out (`fastpath`, `fast_arrivals`).
"""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Protocol

from geomq.broker.core import Core
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.actions import (
    Action,
    DeliverToClients,
    DeliverToOne,
    DropEvent,
    ForgetNote,
    KeepNote,
    RefuseRetained,
    SendOnceFlushed,
    SendRetained,
    SendToPeer,
    SessionAction,
    StoreRetained,
)
from geomq.routing.core.events import PeerSaid, RetainedStored, RoutingEvent, SessionPacked, SharedReturned
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId, Match
from geomq.routing.core.plan import EventBatch
from geomq.routing.federation.edition_messages import wrapped
from geomq.routing.federation.editions import KeepEditions
from geomq.routing.federation.editions import Kept as KeptEditions


class Deliverer(Protocol):
    """Hands events to own clients."""

    def deliver(self, event: Event, matches: tuple[Match, ...], message: ApplicationMessage | None) -> int: ...

    def deliver_to_one(
        self, event: Event, topic_filter: str, members: tuple[ClientId, ...], message: ApplicationMessage | None
    ) -> int: ...


class Arrivals(Protocol):
    """Takes in batches of plain events; what has no plan comes back one by one."""

    def arrive(self, said: PeerSaid, batch: EventBatch, handle: Callable[[PeerSaid], object]) -> None: ...


class Retained(Protocol):
    """Carries out what is asked for about retained events."""

    def store(self, action: StoreRetained) -> RetainedStored | None:
        """Keep a peer's event; what to feed the node then."""

    def fill_in(self, action: SendRetained) -> Message:
        """The message to send."""

    def refuse(self) -> None:
        """A peer's event was refused."""


class Rights(Protocol):
    """What peers may send here and get from here."""

    def may_come(self, said: PeerSaid) -> bool: ...

    def may_go(self, peer: BrokerId, message: Message) -> bool: ...


class Keeper(Protocol):
    """Keeps what must survive a crash."""

    def note_received(self, peer: BrokerId, message: Message, edition: Edition | None) -> None: ...

    def note_delivered(self, event: EventId, matches: tuple[Match, ...]) -> None: ...

    def note_not_had(self, event: EventId, clients: tuple[ClientId, ...]) -> None: ...


class Driver:
    """Feeds the node of one broker and carries out its actions.

    `before_sending` is called before anything is sent to a peer; `kept` is None if nothing has to survive a crash.
    """

    def __init__(
        self,
        core: Core,
        *,
        deliverer: Deliverer,
        arrivals: Arrivals,
        retained: Retained,
        rights: Rights,
        move_session: Callable[[SessionAction], None],
        kept: Keeper | None,
        keep_editions: Callable[[KeptEditions], None],
        before_sending: Callable[[], None],
    ) -> None:
        self._core = core
        self._time_s = core.loop.time
        self._node = core.node
        self._links = core.links
        self._deliverer = deliverer
        self._arrivals = arrivals
        self._retained = retained
        self._rights = rights
        self._move_session = move_session
        self._kept = kept
        self._keep_editions = keep_editions
        self._before_sending = before_sending
        self._watch_due = False
        self._deadline: float | None = None
        self._timer: TimerHandle | None = None

    # What happened.

    def handle(self, event: RoutingEvent, message: ApplicationMessage | None = None) -> int:
        """Feed the node and carry out what it asks for; how many deliveries that made.

        `message` is the published one, to spare its way through the node's plain form.
        """
        said = event if isinstance(event, PeerSaid) else None
        if said is not None and isinstance(said.message, EventBatch):
            self._arrivals.arrive(said, said.message, self.handle)
            return 0
        if said is not None and not self._rights.may_come(said):
            return 0
        actions = self._node.handle(event, now=self._time_s() * 1000.0)
        if said is not None and said.message.keeps and self._kept is not None:
            self._kept.note_received(said.peer, said.message, said.edition)
        delivered = self._carry_out(event, actions, message) if said is None else self._carry_out_said(said, actions)
        self._watch_soon()
        return delivered

    def _carry_out_said(self, said: PeerSaid, actions: list[Action]) -> int:
        """What a peer said follows: QoS 0 behind what its publisher published before, if that waits for the disk."""
        outbox, event = self._core.outbox, getattr(said.message, "event", None)
        if event is None:
            return self._carry_out(said, actions, None)
        outbox.hold_back(None if event.qos else event.publisher)
        try:
            return self._carry_out(said, actions, None)
        finally:
            outbox.hold_back(None)
            if event.qos:
                outbox.promised(event.publisher)

    def hand_on(self, returned: SharedReturned, message: ApplicationMessage) -> bool:
        """Give another member what one of its group never had; False if there is none."""
        actions = self._node.handle(returned, now=self._time_s() * 1000.0)
        self._carry_out(returned, actions, message)
        return not any(isinstance(action, DropEvent) for action in actions)

    def _due(self) -> None:
        """The node's deadline has come."""
        self._timer = self._deadline = None
        self._carry_out(None, self._node.on_deadline(now=self._time_s() * 1000.0), None)
        self._watch()

    # What is to be done.

    def _carry_out(self, event: RoutingEvent | None, actions: list[Action], message: ApplicationMessage | None) -> int:
        """Trace, keep and do what followed from an event, or from a deadline."""
        if self._core.tracer is not None:
            self._core.tracer.handled(event, actions)
        delivered = 0
        for action in actions:
            if isinstance(action, DeliverToClients):
                if self._kept is not None and action.event.qos and self._links.active:
                    self._kept.note_delivered(action.event.id, action.matches)
                delivered += self._deliverer.deliver(action.event, action.matches, message)
            elif isinstance(action, DeliverToOne):
                delivered += self._deliverer.deliver_to_one(action.event, action.topic_filter, action.members, message)
            elif isinstance(action, SendToPeer):
                if self._links.active and self._rights.may_go(action.peer, action.message):
                    self._before_sending()
                    message_out = action.message if action.edition is None else wrapped(action.message, action.edition)
                    self._links.send(action.peer, message_out)
            elif isinstance(action, SendOnceFlushed):
                self._before_sending()  # what was gathered is sent before, too
                self._links.once_flushed(action.peer, action.message, self.tell_peer)
            elif isinstance(action, KeepEditions):
                self._keep_editions(action.kept)
            elif isinstance(action, KeepNote | ForgetNote):
                self.keep_note(action)
            elif isinstance(action, StoreRetained | SendRetained | RefuseRetained):
                self._about_retained(action)
            elif isinstance(action, SessionAction):
                self._move_session(action)
        return delivered

    def _about_retained(self, action: StoreRetained | SendRetained | RefuseRetained) -> None:
        if isinstance(action, StoreRetained):
            stored = self._retained.store(action)
            if stored is not None:
                self.handle(stored)
        elif isinstance(action, SendRetained):
            self.tell_peer(action.peer, self._retained.fill_in(action))
        else:
            self._retained.refuse()

    def keep_note(self, action: KeepNote | ForgetNote) -> None:
        """Write down, or erase, what must survive a restart."""
        if isinstance(action, KeepNote):
            self._core.store.put_note(action.kind, action.key, action.value)
        else:
            self._core.store.delete_note(action.kind, action.key)
        self._core.outbox.schedule()

    def give_session(self, packed: SessionPacked) -> None:
        """A session is on its way to a peer, with events that its client never had."""
        self.handle(packed)
        if self._kept is not None:
            for event in packed.not_had:
                self._kept.note_not_had(event, packed.keys)

    def tell_peer(self, peer: BrokerId, message: Message) -> None:
        """Send what the node left to be filled in."""
        if self._core.tracer is not None:
            self._core.tracer.told(peer, message)
        if self._rights.may_go(peer, message):
            self._links.send(peer, message)

    # The clock.

    def _watch_soon(self) -> None:
        """Once after all that happens in this tick."""
        if not self._watch_due:
            self._watch_due = True
            self._core.loop.call_soon(self._watch)

    def _watch(self) -> None:
        """Call the node when it asked to be called."""
        self._watch_due = False
        deadline = self._node.next_deadline()
        if deadline == self._deadline:
            return
        self._deadline = deadline
        self.stop()
        if deadline is not None:
            self._timer = self._core.loop.call_at(deadline / 1000.0, self._due)

    def stop(self) -> None:
        """No more deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
