"""Retained events are the same at every broker of a federation, deletions included.

A change made here is told to every peer; a change heard from a peer is taken over if it is the later one. When a link
comes up the two sides compare digests, and only if those differ do they send each other what they have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from geomq.broker.core import Core
from geomq.broker.delivery import message_of_event
from geomq.broker.retention import About, Retention
from geomq.mqtt.message import Message
from geomq.mqtt.properties import NO_PROPERTIES, encode_properties
from geomq.mqtt.types import PacketType
from geomq.routing.events import RetainedHeard, RoutingEvent
from geomq.routing.messages import Message as PeerMessage
from geomq.routing.model import BrokerId, ClientId, Event, EventId
from geomq.routing.own_topics import is_own
from geomq.routing.retained import PutRetained, RetainedDigest, RetainedVersions, RetainedWanted, Version

NOTE = "retained-version"
SLICE = 1_000
"""Topics that are told a peer before others get their turn."""
_VERSION = msgspec.msgpack.Decoder(tuple[int, str])

Send = Callable[[BrokerId, PeerMessage], None]


class RetainedSync:
    """Keeps one broker's retained events in step with its peers'."""

    def __init__(
        self,
        core: Core,
        retention: Retention,
        peers: Iterable[BrokerId],
        send: Send,
        handle: Callable[[RoutingEvent], object],
    ) -> None:
        self._core = core
        self._retention = retention
        self._peers = tuple(peers)
        self._send = send
        self._handle = handle
        self._versions = RetainedVersions()
        self._hearing = False
        self._asked: dict[BrokerId, int] = {}
        self._deleted: list[str] = []
        """Topics to be forgotten when there is no room for others, those deleted longest ago last."""
        retention.changed = self._changed

    def set_peers(self, peers: Iterable[BrokerId]) -> None:
        """Brokers came or left; one that came compares digests when its link is up."""
        self._peers = tuple(peers)

    def load(self, notes: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """Take in the versions that the store remembered."""
        for key, value in notes.get(NOTE, {}).items():
            try:
                time_ms, origin = _VERSION.decode(value)
            except msgspec.MsgspecError:
                continue
            self._versions.take(key.decode("utf-8", "surrogatepass"), Version(time_ms, BrokerId(origin)))
        for topic in self._retention.topics():
            if self._versions.get(topic) is None:  # from before there were peers
                self._note(topic, Version(0, self._core.node.me))

    def peer_up(self, peer: BrokerId) -> None:
        self._send(peer, RetainedDigest(self._versions.digest))

    def peer_down(self, peer: BrokerId) -> None:
        """What was to be sent is sent when the link is up."""

    def heard(self, peer: BrokerId, message: PeerMessage) -> bool:
        """Deal with a message of a peer; False if it is none of ours."""
        match message:
            case RetainedDigest(digest=digest):
                if digest != self._versions.digest:
                    self._send(peer, RetainedWanted())
            case RetainedWanted():
                self._asked[peer] = self._asked.get(peer, 0) + 1
                self._answer(peer, self._asked[peer], iter(self._versions))
            case PutRetained(event=event, user=user, published=published):
                if self._take(event, user) and published is not None:
                    self._handle(RetainedHeard(msgspec.structs.replace(event, id=published)))
            case _:
                return False
        return True

    def _answer(self, peer: BrokerId, question: int, topics: Iterator[str]) -> None:
        """Send everything in slices, so that others get their turn, unless it was asked for once more meanwhile."""
        if self._asked.get(peer) != question:
            return
        some = tuple(islice(topics, SLICE))
        for topic in some:
            if self._versions.get(topic) is not None:
                self._send(peer, self._put_of(topic))
        if some:
            self._core.loop.call_soon(self._answer, peer, question, topics)

    def _changed(self, message: Message, about: About) -> None:
        """A retained event was set or deleted: give it a version and tell everybody, unless a peer told us."""
        if self._hearing or is_own(message.topic):
            return
        me = self._core.node.me
        if not self._note(message.topic, self._versions.next(message.topic, me, int(self._core.wall_s() * 1000))):
            self._core.counts.retained_refused += 1
            return
        news = msgspec.structs.replace(self._put_of(message.topic), published=self._core.node.next_id)
        self._core.loop.call_soon(self._tell, news)  # after the event itself, which is routed next

    def _tell(self, news: PutRetained) -> None:
        for peer in self._peers:
            self._send(peer, news)

    def _take(self, event: Event, user: str | None) -> bool:
        """A peer's version of a topic: the later one stays; whether it is this one."""
        if is_own(event.topic):
            return False
        version, before = Version(event.id.sequence, event.id.origin), self._versions.get(event.topic)
        if before is not None and version <= before:
            return False
        message = message_of_event(event, self._core.wall_s())
        self._hearing = True
        try:
            kept = self._retention.put(message, About(event.fence, event.location, event.publisher or None, user))
        finally:
            self._hearing = False
        if kept:  # else others would hear from here that it was deleted
            self._note(event.topic, version)
        return kept

    def _note(self, topic: str, version: Version) -> bool:
        if self._versions.full and self._versions.get(topic) is None:
            self._forget_one()
        if not self._versions.take(topic, version):
            return False
        self._core.store.put_note(NOTE, _key(topic), msgspec.msgpack.encode(version))
        self._core.outbox.schedule()
        return True

    def _forget_one(self) -> None:
        """Let go of a topic of which nothing is retained."""
        if not self._deleted and len(self._retention) < len(self._versions):
            known = ((self._versions.get(topic), topic) for topic in self._versions if not self._is_retained(topic))
            self._deleted = [topic for _, topic in sorted(known, reverse=True)]
        while self._deleted:
            topic = self._deleted.pop()
            if not self._is_retained(topic):
                self._versions.forget(topic)
                self._core.store.delete_note(NOTE, _key(topic))
                return

    def _is_retained(self, topic: str) -> bool:
        return self._retention.get(topic)[0] is not None

    def _put_of(self, topic: str) -> PutRetained:
        """The topic's event as peers hear of it; a deleted one has no payload."""
        version = self._versions.get(topic)
        assert version is not None
        event_id = EventId(version.origin, 0, version.time_ms)
        message, about = self._retention.get(topic)
        if message is None:
            return PutRetained(Event(event_id, topic, ClientId(""), None, None, retain=True))
        properties = message.properties
        if message.expires_at is not None:
            left_s = max(0, round(message.expires_at - self._core.wall_s()))
            properties = msgspec.structs.replace(properties, message_expiry_interval=left_s)
        packed = b"" if properties == NO_PROPERTIES else encode_properties(properties, PacketType.PUBLISH)
        publisher = ClientId(about.client_id or "")
        return PutRetained(
            Event(
                event_id,
                topic,
                publisher,
                about.location,
                about.fence,
                message.payload,
                message.qos,
                True,
                packed,
                int(self._core.wall_s() * 1000),
            ),
            about.user,
        )


def _key(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogatepass")
