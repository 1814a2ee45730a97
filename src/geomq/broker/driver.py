"""The one loop that feeds the routing node: what happened goes to the node, is traced, what must be kept is kept, and
what the node asks for is carried out.

What clients do, what peers send, links that come and go, and deadlines all take this path. It decides nothing.
Plain events of QoS 0 bypass it along the plans that the node gave out (`fastpath`, `fast_arrivals`).
"""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from geomq.broker.peers.store import PeerStore
from geomq.mqtt.session.message import Message
from geomq.routing.core.actions import (
    Action,
    DeliverToClients,
    DeliverToOne,
    ForgetNote,
    KeepNote,
    RefuseRetained,
    SendRetained,
    SendToPeer,
    SessionAction,
    StoreRetained,
)
from geomq.routing.core.events import PeerSaid, RoutingEvent
from geomq.routing.core.messages import Message as PeerMessage
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, Match
from geomq.routing.core.plan import EventBatch
from geomq.routing.federation.edition_messages import wrapped
from geomq.routing.federation.editions import KeepEditions, Kept

if TYPE_CHECKING:
    from geomq.broker.core import Core


class Links(Protocol):
    """Where messages to other brokers go."""

    def send(self, peer: BrokerId, message: PeerMessage) -> None:
        """Send a message, at the end of this tick."""

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        """Send plain events, now."""


class Deliverer(Protocol):
    """Hands events to own clients."""

    def deliver(self, event: Event, matches: tuple[Match, ...], message: Message | None) -> int: ...

    def deliver_to_one(
        self, event: Event, topic_filter: str, members: tuple[ClientId, ...], message: Message | None
    ) -> int: ...


class Arrivals(Protocol):
    """Takes in batches of plain events; what has no plan comes back one by one."""

    def arrive(self, said: PeerSaid, batch: EventBatch, handle: Callable[[PeerSaid], object]) -> None: ...


class Retained(Protocol):
    """Carries out what is asked for about retained events."""

    def carry_out(self, action: StoreRetained | SendRetained | RefuseRetained) -> None: ...


class Sessions(Protocol):
    """Carries out what is asked for about sessions that move."""

    def carry_out(self, action: SessionAction) -> None: ...


class Driver:
    """Feeds the node of one broker and carries out its actions. The broker fills in the parts it has."""

    def __init__(self, core: "Core") -> None:
        self.links: Links | None = None
        self.deliverer: Deliverer | None = None
        self.arrivals: Arrivals | None = None
        self.kept: PeerStore | None = None
        """Where what must survive a crash is kept; None if nothing does."""
        self.retained: Retained | None = None
        self.sessions: Sessions | None = None
        self.before_delivery: Callable[[], None] = lambda: None
        self.keep_editions: Callable[[Kept], None] = lambda _kept: None
        self._core = core
        self._watch_due = False
        self._deadline: float | None = None
        self._timer: TimerHandle | None = None

    # What happened.

    def handle(self, event: RoutingEvent, message: Message | None = None) -> int:
        """Feed the node and carry out what it asks for; how many deliveries that made.

        `message` is the published one, to spare its way through the node's plain form.
        """
        said = event if isinstance(event, PeerSaid) else None
        if said is not None and isinstance(said.message, EventBatch):
            assert self.arrivals is not None
            self.arrivals.arrive(said, said.message, self.handle)
            return 0
        actions = self._core.node.handle(event, now=self._core.now_ms())
        if said is not None and self.kept is not None:
            self.kept.note_received(said.peer, said.message, said.edition)
        delivered = self._carry_out(event, actions, message)
        self._watch_soon()
        return delivered

    def _due(self) -> None:
        """The node's deadline has come."""
        self._timer = self._deadline = None
        self._carry_out(None, self._core.node.on_deadline(now=self._core.now_ms()), None)
        self._watch()

    # What is to be done.

    def _carry_out(self, event: RoutingEvent | None, actions: list[Action], message: Message | None) -> int:
        """Trace, keep and do what followed from an event, or from a deadline."""
        if self._core.tracer is not None:
            self._core.tracer.handled(event, actions)
        if self.kept is not None and self.links is not None:
            self.kept.note_delivered(actions)
        delivered = 0
        for action in actions:
            if isinstance(action, DeliverToClients):
                assert self.deliverer is not None
                delivered += self.deliverer.deliver(action.event, action.matches, message)
            elif isinstance(action, DeliverToOne):
                assert self.deliverer is not None
                delivered += self.deliverer.deliver_to_one(action.event, action.topic_filter, action.members, message)
            elif isinstance(action, SendToPeer):
                if self.links is not None:
                    self.before_delivery()
                    self.links.send(action.peer, wrapped(action.message, action.edition))
            elif isinstance(action, KeepEditions):
                self.keep_editions(action.kept)
            elif isinstance(action, KeepNote | ForgetNote):
                self.keep_note(action)
            elif isinstance(action, StoreRetained | SendRetained | RefuseRetained):
                assert self.retained is not None
                self.retained.carry_out(action)
            elif isinstance(action, SessionAction):
                assert self.sessions is not None
                self.sessions.carry_out(action)
        return delivered

    def keep_note(self, action: KeepNote | ForgetNote) -> None:
        """Write down, or erase, what must survive a restart."""
        if isinstance(action, KeepNote):
            self._core.store.put_note(action.kind, action.key, action.value)
        else:
            self._core.store.delete_note(action.kind, action.key)
        self._core.outbox.schedule()

    def tell_peer(self, peer: BrokerId, message: PeerMessage) -> None:
        """Send what the node left to be filled in."""
        if self._core.tracer is not None:
            self._core.tracer.told(peer, message)
        if self.links is not None:
            self.links.send(peer, message)

    # The clock.

    def _watch_soon(self) -> None:
        """Once after all that happens in this tick."""
        if not self._watch_due:
            self._watch_due = True
            self._core.loop.call_soon(self._watch)

    def _watch(self) -> None:
        """Call the node when it asked to be called."""
        self._watch_due = False
        deadline = self._core.node.next_deadline()
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
