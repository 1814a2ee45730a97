"""Retained events are the same at every broker of a federation, deletions included.

A change made here is sent to every peer; a change received from a peer is taken over if it is the later one. When a
link comes up the two sides compare digests, and only if those differ do they send each other what they have, in slices.

Owns the versions of all topics, what peers asked for, and the own subscriptions that peers may not know of. The events
themselves are the driver's: it keeps what `StoreRetained` brings and answers with `RetainedStored`, and it fills in
what `SendRetained` sends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from geomq.routing.core.actions import (
    Action,
    ForgetNote,
    KeepNote,
    RefuseRetained,
    SendRetained,
    SendToPeer,
    StoreRetained,
)
from geomq.routing.core.events import RetainedChanged, RetainedExpired, RetainedStored, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, Version
from geomq.routing.core.recent_subscriptions import RecentSubscriptions
from geomq.routing.core.strategy import ClientState
from geomq.routing.federation.routings import Routings
from geomq.routing.retained.versions import PutRetained, RetainedDigest, RetainedVersions, RetainedWanted
from geomq.routing.sharing.own_topics import is_own

OF_RETAINED = (RetainedChanged, RetainedStored, RetainedExpired)
NOTE = "retained-version"
SLICE = 1_000

_VERSION = msgspec.msgpack.Decoder(tuple[int, str])


class RetainedSync:
    """Keeps one broker's retained events in step with its peers'. Until `load` it does nothing."""

    def __init__(
        self,
        me: BrokerId,
        *,
        clients: Mapping[ClientId, ClientState],
        routings: Routings,
        act: Callable[[Action], None],
        peers: Callable[[], tuple[BrokerId, ...]],
    ) -> None:
        self._me = me
        self._routings = routings
        self._act = act
        self._peers = peers
        self._recent = RecentSubscriptions(me, clients)
        self.slice = SLICE
        """Topics that are sent to a peer before others get their turn."""
        self.active = False
        """Whether there may be peers to be in step with."""
        self._versions = RetainedVersions()
        self._empty: dict[str, None] = {}
        """Topics of which nothing is retained any more: deleted or expired."""
        self._oldest: list[str] = []
        """Of these, those to be forgotten when there is no room for others, the longest ago last."""
        self._answers: dict[BrokerId, Iterator[str] | None] = {}
        """What is left to be sent to peers that asked for everything; None before the first slice."""
        self.deadline: float | None = None
        """When `on_deadline` is to be called."""

    def load(self, notes: Mapping[bytes, bytes], topics: Iterable[str]) -> None:
        """Begin with the versions that were kept and the topics of which something is retained."""
        self.active = True
        for key, value in notes.items():
            try:
                time_ms, origin = _VERSION.decode(value)
            except msgspec.MsgspecError:
                continue
            topic = key.decode("utf-8", "surrogatepass")
            if self._versions.take(topic, Version(time_ms, BrokerId(origin))):
                self._empty[topic] = None
        for topic in topics:
            self._empty.pop(topic, None)
            if self._versions.get(topic) is None:  # from before there were peers
                self._versions.take(topic, Version(0, self._me))

    def version(self, topic: str) -> Version | None:
        return self._versions.get(topic)

    # Here.

    def subscribed(self, client: ClientId, topic_filter: str, now: float) -> None:
        """An own client subscribed: for a while publishers' brokers may not know. Those known before `load` they do."""
        if self.active:
            self._recent.put(client, topic_filter, now=now)

    def handle(self, happened: RoutingEvent, now: float) -> None:
        match happened:
            case RetainedChanged():
                self._changed(happened)
            case RetainedStored(event=event, published=published):
                self._note(event.topic, Version(event.id.sequence, event.id.origin), deleted=not event.payload)
                if published is not None:
                    self._deliver(msgspec.structs.replace(event, id=published), now)
            case RetainedExpired(topics=topics):
                for topic in topics:
                    if self._versions.get(topic) is not None:
                        self._empty[topic] = None  # its version stays, as it does elsewhere

    def _deliver(self, event: Event, now: float) -> None:
        """Clients that subscribed too late for its publisher's broker to know get what is news from here."""
        matches = self._recent.match(event, now=now)
        for strategy in self._routings.strategies:
            matches = strategy.seen.unseen(event.id, matches) if matches else ()
        if matches:
            self._routings.publishing.deliver(event, matches)

    def _changed(self, happened: RetainedChanged) -> None:
        """An own client set or deleted a topic's event: give it a version and send it to everybody."""
        topic = happened.topic
        if not self.active or is_own(topic):
            return
        version = self._versions.next(topic, self._me, happened.wall_ms)
        if not self._note(topic, version, deleted=happened.deleted):
            self._act(RefuseRetained(topic, "too many topics"))
            return
        for peer in self._peers():
            self._act(SendRetained(peer, topic, version, happened.published))

    def _note(self, topic: str, version: Version, *, deleted: bool) -> bool:
        if self._versions.full and self._versions.get(topic) is None:
            self._forget_one()
        if not self._versions.take(topic, version):
            return False
        if deleted:
            self._empty[topic] = None
        else:
            self._empty.pop(topic, None)
        self._act(KeepNote(NOTE, _key(topic), msgspec.msgpack.encode(version)))
        return True

    def _forget_one(self) -> None:
        """Let go of a topic of which nothing is retained."""
        if not self._oldest:
            self._oldest = sorted(self._empty, key=lambda topic: (self._versions.get(topic), topic), reverse=True)
        while self._oldest:
            topic = self._oldest.pop()
            if topic in self._empty:
                del self._empty[topic]
                self._versions.forget(topic)
                self._act(ForgetNote(NOTE, _key(topic)))
                return

    # Peers.

    def peer_up(self, peer: BrokerId) -> None:
        if self.active and peer in self._peers():
            self._act(SendToPeer(peer, RetainedDigest(self._versions.digest)))

    def peer_down(self, peer: BrokerId) -> None:
        """What is left is asked for again when the link is up."""
        self._answers.pop(peer, None)

    def said(self, peer: BrokerId, message: Message, *, now: float) -> bool:
        """Deal with a message of a peer; False if it is not about retained events."""
        match message:
            case RetainedDigest(digest=digest):
                if digest != self._versions.digest:
                    self._act(SendToPeer(peer, RetainedWanted()))
            case RetainedWanted():
                self._answers[peer] = None
                self.deadline = now
            case PutRetained(event=event, user=user, published=published):
                before = self._versions.get(event.topic)
                if not is_own(event.topic) and (before is None or Version(event.id.sequence, event.id.origin) > before):
                    self._act(StoreRetained(event, user, published))
            case _:
                return False
        return True

    # The clock.

    def on_deadline(self, *, now: float) -> None:
        """Send a slice to each peer that asked for everything; one that asked once more begins anew."""
        for peer, left in tuple(self._answers.items()):
            topics = iter(self._versions) if left is None else left
            some = tuple(islice(topics, self.slice))
            for topic in some:
                version = self._versions.get(topic)
                if version is not None:
                    self._act(SendRetained(peer, topic, version))
            if len(some) < self.slice:
                del self._answers[peer]
            else:
                self._answers[peer] = topics
        self.deadline = now if self._answers else None


def _key(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogatepass")
