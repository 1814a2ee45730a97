"""From matches to bytes: which clients get an event, on what terms, and one member per share group.

Routing has decided what matched. Here overlapping subscriptions become one delivery, rights are checked once more,
and a reader that is too slow loses its QoS 0 messages, counted.
"""

from geomq.broker.clients import Client, split_voice
from geomq.broker.core import Core
from geomq.broker.details import told
from geomq.broker.tracer import named
from geomq.mqtt.message import Fanout, Message
from geomq.mqtt.properties import NO_PROPERTIES, decode_properties
from geomq.mqtt.subscriptions import Subscription, Terms, merge
from geomq.mqtt.types import PacketType
from geomq.routing.model import Event, Match

Grouped = dict[Client, Subscription | tuple[Subscription, ...]]


class Delivery:
    """Carries out `DeliverToClients`; `last` are the matches of the latest one."""

    def __init__(self, core: Core) -> None:
        self.last: tuple[Match, ...] = ()
        self._core = core
        self._event: Event | None = None
        self._plain: Fanout | None = None
        self._told: Fanout | None = None
        self._turns: dict[tuple[str, str], int] = {}

    def deliver(self, event: Event, matches: tuple[Match, ...], message: Message | None) -> int:
        """Hand the event to the clients of these matches; how many got or will get it."""
        self._core.before_delivery()
        self.last = matches
        if message is None:
            message = message_of_event(event, self._core.wall_s())
        if self._core.tracer is not None:
            message = named(message, event)
        fanout = Fanout(message, self._core.wall_s())
        self._event, self._plain, self._told = event, fanout, None
        return self.fan_out(fanout, matches, event.publisher)

    def fan_out(self, fanout: Fanout, matches: tuple[Match, ...], publisher: str) -> int:
        clients = self._core.clients
        grouped: Grouped = {}
        shared: dict[tuple[str, str], list[tuple[Client, Subscription]]] | None = None
        for client_id, topic_filter in matches:
            client = clients.get(client_id)
            if client is None:
                found = self._voiced(client_id, topic_filter)
                if found is None:
                    continue
                client, subscription = found
                if subscription.topic_filter.startswith("$share/"):
                    shared = {} if shared is None else shared
                    group = subscription.topic_filter.split("/", 2)[1]
                    shared.setdefault((group, topic_filter), []).append(found)
                    continue
            else:
                known = client.session.subscriptions.get(topic_filter)
                if known is None:
                    continue
                subscription = known
            held = grouped.get(client)
            if held is None:
                grouped[client] = subscription
            else:
                grouped[client] = (*held, subscription) if isinstance(held, tuple) else (held, subscription)
        count = 0
        for client, mine in grouped.items():
            count += self._to_client(client, mine, fanout, own=client.id == publisher)
        if shared is not None:
            for key, members in shared.items():
                client, subscription = self._choose(key, members)
                count += self._to_client(client, subscription, fanout, own=False)
        return count

    def _voiced(self, client_id: str, topic_filter: str) -> tuple[Client, Subscription] | None:
        name, prefix = split_voice(client_id)
        client = self._core.clients.get(name)
        if client is None:
            return None
        subscription = client.session.subscriptions.get(prefix + topic_filter)
        return None if subscription is None else (client, subscription)

    def _choose(self, key: tuple[str, str], members: list[tuple[Client, Subscription]]) -> tuple[Client, Subscription]:
        """The next member in turn, one that can take the message now if there is any."""
        turn = self._turns.get(key, 0)
        if len(self._turns) > 100_000:
            self._turns.clear()
        self._turns[key] = turn + 1
        ready = [member for member in members if member[0].connection is not None and not member[0].connection.paused]
        choice = ready or [member for member in members if member[0].connection is not None] or members
        return choice[turn % len(choice)]

    def _to_client(
        self,
        client: Client,
        mine: Subscription | tuple[Subscription, ...],
        fanout: Fanout,
        *,
        own: bool,
    ) -> int:
        message = fanout.message
        if isinstance(mine, tuple) or mine.identifier or own or message.retain:
            several = mine if isinstance(mine, tuple) else (mine,)
            terms = merge(several, qos=message.qos, retain=message.retain, own=own)
            if terms is None:
                return self._kept_back(client, message, 0, "own event")
        else:
            terms = _PLAIN[min(message.qos, mine.qos)]
        return self.send(client, fanout, terms)

    def send(self, client: Client, fanout: Fanout, terms: Terms) -> int:
        """Give one client one message; 1 if it got or will get it."""
        if client.asks:
            fanout = self._tell(fanout)
        counts, rights = self._core.counts, client.rights
        if not rights.all_allowed and not rights.may_read(fanout.message.topic):
            counts.deliveries_denied += 1
            return self._kept_back(client, fanout.message, terms.qos, "no right to read")
        if terms.qos:
            return self._send_surely(client, fanout, terms)
        connection = client.connection
        if connection is None:
            return self._kept_back(client, fanout.message, 0, "offline")
        data = b"" if connection.paused else client.session.deliver(fanout, terms)
        if not data:
            counts.events_dropped += 1
            trouble = "slow reader" if connection.paused else "too large for the client"
            return self._kept_back(client, fanout.message, 0, trouble)
        connection.send(data)
        counts.events_delivered += 1
        if self._core.tracer is not None:
            self._core.tracer.handed(client.id, fanout.message, 0, None)
        return 1

    def _tell(self, fanout: Fanout) -> Fanout:
        """The same for clients that asked for details, made once for all of them."""
        core = self._core
        if fanout is not self._plain:
            self._event, self._plain, self._told = None, fanout, None
        if self._told is None:
            self._told = Fanout(told(fanout.message, self._event, core.config.geo.details), core.wall_s())
        return self._told

    def _kept_back(self, client: Client, message: Message, qos: int, trouble: str) -> int:
        if self._core.tracer is not None:
            self._core.tracer.handed(client.id, message, qos, trouble)
        return 0

    def _send_surely(self, client: Client, fanout: Fanout, terms: Terms) -> int:
        """QoS 1 and 2: now, or when the client is there and has room."""
        core, session = self._core, client.session
        before = session.dropped
        data = session.deliver(fanout, terms)
        if data:
            assert client.connection is not None
            core.outbox.hold(client.connection, data)
            core.counts.events_delivered += 1
            return 1
        core.outbox.schedule()
        if session.dropped > before:
            core.counts.events_dropped += 1
            return 0
        return 1


_PLAIN = (Terms(0, False, ()), Terms(1, False, ()), Terms(2, False, ()))


def message_of_event(event: Event, now: float) -> Message:
    """The message of an event that came from another broker."""
    properties = NO_PROPERTIES
    expires_at = None
    if event.properties:
        properties, _ = decode_properties(event.properties, 0, len(event.properties), PacketType.PUBLISH)
        if properties.message_expiry_interval is not None:
            expires_at = now + properties.message_expiry_interval
    return Message(event.topic, event.payload, event.qos, event.retain, properties, expires_at)
