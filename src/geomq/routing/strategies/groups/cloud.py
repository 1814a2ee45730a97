"""A vanilla MQTT broker as broadcast groups see it: topics, subscriptions, no echo to the sender. Nothing else.

It has the door of a `Node` (`handle`, `next_deadline`, `on_deadline`) and may serve clients of its own, which is how
devices that know nothing of groups take part. It knows no places: fences are carried, never checked.
"""

from geomq.errors import TopicError
from geomq.mqtt.codec.topics import TopicTrie, check_filter
from geomq.routing.core.actions import Action, DeliverToClients, SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    PeerDown,
    PeerSaid,
    RoutingEvent,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.strategies.groups.messages import (
    CloudAnnounce,
    CloudAnnounced,
    CloudPing,
    CloudPong,
    CloudPublish,
    CloudPublished,
    CloudSubscribe,
    CloudUnsubscribe,
)

FILTERS_MAX = 262_144
"""Filters one session may hold."""

Session = tuple[bool, str]
"""A leader's session (False, broker) or an own client's (True, client)."""


class CloudNode:
    """The cloud broker, without its sockets."""

    def __init__(self, me: BrokerId, *, epoch: int = 0) -> None:
        self.me = me
        self.epoch = epoch
        self._trie: TopicTrie[dict[Session, None]] = TopicTrie()
        self._filters: dict[Session, dict[str, None]] = {}
        self._sequence = 0
        self._actions: list[Action] = []

    def handle(self, event: RoutingEvent, *, now: float) -> list[Action]:
        """Take in what happened; return what is to be done. What a vanilla broker does not know is ignored."""
        match event:
            case PeerSaid(peer=peer, message=message):
                self._said(peer, message)
            case PeerDown(peer=peer):
                self._end((False, peer))
            case ClientSubscribed(client=client, topic_filter=topic_filter):
                self._subscribe((True, client), topic_filter)
            case ClientUnsubscribed(client=client, topic_filter=topic_filter):
                self._unsubscribe((True, client), topic_filter)
            case ClientGone(client=client):
                self._end((True, client))
            case ClientPublished():
                self._client_published(event)
        actions, self._actions = self._actions, []
        return actions

    def next_deadline(self) -> float | None:
        return None

    def on_deadline(self, *, now: float) -> list[Action]:
        return []

    def subscriptions(self, peer: BrokerId) -> tuple[str, ...]:
        """What a leader has subscribed to."""
        return tuple(self._filters.get((False, peer), ()))

    def state_size(self) -> int:
        return sum(len(filters) for filters in self._filters.values())

    def _said(self, peer: BrokerId, message: Message) -> None:
        match message:
            case CloudSubscribe(topic_filter=topic_filter):
                self._subscribe((False, peer), topic_filter)
            case CloudUnsubscribe(topic_filter=topic_filter):
                self._unsubscribe((False, peer), topic_filter)
            case CloudPublish(event=event):
                self._publish(event, CloudPublished(event), sender=(False, peer))
            case CloudAnnounce(topic=topic, leader=leader, lcm=lcm):
                for leaders in self._trie.match(topic):
                    for session in leaders:
                        self._send(session, CloudAnnounced(topic, leader, lcm), sender=(False, peer))
            case CloudPing(token=token):
                self._actions.append(SendToPeer(peer, CloudPong(token)))

    def _client_published(self, published: ClientPublished) -> None:
        self._sequence += 1
        event = Event(
            EventId(self.me, self.epoch, self._sequence),
            published.topic,
            published.client,
            None,
            None,
            published.payload,
            published.qos,
            published.retain,
            published.properties,
            published.at_ms,
            published.due_ms,
        )
        self._publish(event, CloudPublished(event), sender=None)

    def _publish(self, event: Event, message: Message, *, sender: Session | None) -> None:
        """One copy for every session, however many of its filters match."""
        peers: dict[Session, None] = {}
        matches: list[Match] = []
        for topic_filter, sessions in self._trie.match_items(event.topic):
            for session in sessions:
                own, name = session
                if own:
                    matches.append(Match(ClientId(name), topic_filter))
                else:
                    peers[session] = None
        for peer in peers:
            self._send(peer, message, sender=sender)
        if matches:
            self._actions.append(DeliverToClients(event, tuple(matches)))

    def _send(self, session: Session, message: Message, *, sender: Session | None) -> None:
        own, name = session
        if not own and session != sender:
            self._actions.append(SendToPeer(BrokerId(name), message))

    def _subscribe(self, session: Session, topic_filter: str) -> None:
        try:
            check_filter(topic_filter)
        except TopicError:
            return
        filters = self._filters.setdefault(session, {})
        if topic_filter in filters or len(filters) >= FILTERS_MAX:
            return
        filters[topic_filter] = None
        sessions = self._trie.get(topic_filter)
        if sessions is None:
            sessions = {}
            self._trie.put(topic_filter, sessions)
        sessions[session] = None

    def _unsubscribe(self, session: Session, topic_filter: str) -> None:
        filters = self._filters.get(session, {})
        if topic_filter not in filters:
            return
        del filters[topic_filter]
        if not filters:
            del self._filters[session]
        sessions = self._trie.get(topic_filter)
        assert sessions is not None
        del sessions[session]
        if not sessions:
            self._trie.remove(topic_filter)

    def _end(self, session: Session) -> None:
        """The session is over, as MQTT's clean start has it."""
        for topic_filter in tuple(self._filters.get(session, ())):
            self._unsubscribe(session, topic_filter)
