"""From matches to bytes: which clients get an event, on what terms, and which member of a share group can take it.

Routing has decided what matched. Here overlapping subscriptions become one delivery, rights are checked once more,
and a reader that is too slow loses its QoS 0 messages, counted.
"""

from collections.abc import Callable

from msgspec import structs

from geomq.broker.clients.details import told
from geomq.broker.core import Core
from geomq.broker.state.client import Client, split_subscription_key
from geomq.broker.state.drops import Reason
from geomq.broker.state.tracer import named
from geomq.geo import fence_text
from geomq.mqtt.codec.properties import NO_PROPERTIES
from geomq.mqtt.session.message import ApplicationMessage, Fanout, Shared
from geomq.mqtt.session.subscriptions import Subscription, Terms, merge
from geomq.routing.core.model import ClientId, Event, Match
from geomq.routing.core.wire_checks import properties_of

Grouped = dict[Client, Subscription | list[Subscription]]


class Delivery:
    """Carries out `DeliverToClients` and `DeliverToOne`; `last` are the matches of the latest.

    `before` lets go what was gathered for clients, which goes before any delivery.
    """

    def __init__(self, core: Core, before: Callable[[], None]) -> None:
        self.last: tuple[Match, ...] = ()
        self._core = core
        self._before = before
        self._event: Event | None = None
        self._plain: Fanout | None = None
        self._told: Fanout | None = None

    def forget_last(self) -> None:
        """Nothing was matched yet for what comes now."""
        self.last = ()

    def deliver(self, event: Event, matches: tuple[Match, ...], message: ApplicationMessage | None) -> int:
        """Hand the event to the clients of these matches; how many got or will get it."""
        self.last = matches
        fanout = self._fanout(event, message)
        return 0 if fanout is None else self.fan_out(fanout, matches, event.publisher)

    def deliver_to_one(
        self, event: Event, topic_filter: str, members: tuple[ClientId, ...], message: ApplicationMessage | None
    ) -> int:
        """Hand the event to one member of a share group; 1 if it got or will get it."""
        self.last = (Match(members[0], topic_filter),)
        found = [each for member in members if (each := self._subscription_of(member, topic_filter)) is not None]
        if not found:
            return 0
        client, subscription = next((each for each in found if _can_take(each[0])), found[0])
        shared = _shared(event, subscription) if event.qos and subscription.qos else None
        fanout = self._fanout(event, message, shared)
        return 0 if fanout is None else self._to_client(client, subscription, fanout, own=False)

    def _fanout(self, event: Event, message: ApplicationMessage | None, shared: Shared | None = None) -> Fanout | None:
        """The event as it is sent to everybody; None if it expired on its way from another broker."""
        self._before()
        now = self._core.now_s()
        if message is None:
            message = message_of_event(event, now)
            if message.expired(now):
                self._core.drops.late(event.id.origin)
                return None
        if self._core.tracer is not None or (event.qos and self._core.links.active):
            message = named(message, event)
        if shared is not None:
            message = structs.replace(message, shared=shared)
        fanout = Fanout(message, now)
        self._event, self._plain, self._told = event, fanout, None
        return fanout

    def fan_out(self, fanout: Fanout, matches: tuple[Match, ...], publisher: str) -> int:
        clients = self._core.clients
        grouped: Grouped = {}
        for client_id, topic_filter in matches:
            client = clients.get(client_id)
            if client is None:
                found = self._subscription_of(client_id, topic_filter)
                if found is None:
                    continue
                client, subscription = found
            else:
                known = client.session.subscriptions.get(topic_filter)
                if known is None:
                    continue
                subscription = known
            held = grouped.get(client)
            if held is None:
                grouped[client] = subscription
            elif isinstance(held, list):
                held.append(subscription)
            else:
                grouped[client] = [held, subscription]
        count = 0
        for client, mine in grouped.items():
            count += self._to_client(client, mine, fanout, own=client.id == publisher)
        self._core.outbox.gather(count * fanout.size)
        return count

    def _subscription_of(self, client_id: str, topic_filter: str) -> tuple[Client, Subscription] | None:
        name, prefix = split_subscription_key(client_id)
        client = self._core.clients.get(name)
        if client is None:
            return None
        subscription = client.session.subscriptions.get(prefix + topic_filter)
        return None if subscription is None else (client, subscription)

    def _to_client(
        self,
        client: Client,
        mine: Subscription | list[Subscription],
        fanout: Fanout,
        *,
        own: bool,
    ) -> int:
        message = fanout.message
        if isinstance(mine, list) or mine.identifier or own or message.retain:
            several = mine if isinstance(mine, list) else [mine]
            terms = merge(several, qos=message.qos, retain=message.retain, own=own)
            if terms is None:
                return self._kept_back(client, message, 0, "own event")
        else:
            terms = PLAIN_TERMS[min(message.qos, mine.qos)]
        return self.send(client, fanout, terms)

    def send(self, client: Client, fanout: Fanout, terms: Terms) -> int:
        """Give one client one message; 1 if it got or will get it."""
        if client.asks:
            fanout = self._tell(fanout)
        counts, rights = self._core.counts, client.rights
        if not rights.all_allowed and not rights.may_read(fanout.message.topic):
            counts.deliveries_denied += 1
            return self._kept_back(client, fanout.message, terms.qos, "not authorized to read")
        if terms.qos:
            return self._send_surely(client, fanout, terms)
        connection = client.connection
        if connection is None:
            return self._kept_back(client, fanout.message, 0, "offline")
        before = self._core.outbox.before
        data = b"" if connection.paused else client.session.deliver(fanout, terms, held=before is not None)
        if not data:
            reason = Reason.SLOW_READER if connection.paused else Reason.TOO_LARGE
            self._core.drops.missed(client.session, reason)
            trouble = "slow reader" if connection.paused else "too large for the client"
            return self._kept_back(client, fanout.message, 0, trouble)
        if before is not None:
            self._core.outbox.send_behind(before, connection, data)
        else:
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
            self._told = Fanout(told(fanout.message, self._event, core.config.geo.details), core.now_s())
        return self._told

    def _kept_back(self, client: Client, message: ApplicationMessage, qos: int, trouble: str) -> int:
        if self._core.tracer is not None:
            self._core.tracer.handed(client.id, message, qos, trouble)
        return 0

    def _send_surely(self, client: Client, fanout: Fanout, terms: Terms) -> int:
        """QoS 1 and 2: now, or when the client is there and has room."""
        core, session = self._core, client.session
        data = session.deliver(fanout, terms)
        if data:
            assert client.connection is not None
            core.outbox.hold(client.connection, data)
            return 1
        core.outbox.schedule()
        return 0 if data is None else 1


def _shared(event: Event, subscription: Subscription) -> Shared:
    """What has to be known to give it to another member later."""
    fence = None if event.fence is None else fence_text(event.fence)
    return Shared(subscription.topic_filter, event.publisher, event.location, fence)


def _can_take(client: Client) -> bool:
    """Whether the client is there, reads, and has room."""
    return client.connection is not None and not client.connection.paused and not client.session.full


PLAIN_TERMS = (Terms(0, False, ()), Terms(1, False, ()), Terms(2, False, ()))


def message_of_event(event: Event, now: float) -> ApplicationMessage:
    """The message of an event that came from another broker."""
    properties = NO_PROPERTIES
    expires_at = None
    if event.properties:
        properties = properties_of(event.properties)
        if event.due_ms is not None:
            expires_at = event.due_ms / 1000.0
        elif properties.message_expiry_interval is not None:
            expires_at = now + properties.message_expiry_interval
    return ApplicationMessage(event.topic, event.payload, event.qos, event.retain, properties, expires_at)
