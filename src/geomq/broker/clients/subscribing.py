"""SUBSCRIBE and UNSUBSCRIBE: options, fences, limits, and the retained events that follow."""

from collections.abc import Iterator
from functools import partial

from msgspec import structs

from geomq.broker.clients.fenced import FencedFilters
from geomq.broker.clients.geotopics import Reading, read_filter
from geomq.broker.clients.mounting import mounted_filter
from geomq.broker.clients.retention import Retention
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.state.budget import SHORT_OF_MEMORY
from geomq.broker.state.client import Client, ClientConnection, Pattern
from geomq.broker.storage.records import SubscriptionRecord
from geomq.errors import GeometryError, TopicError
from geomq.geo import Fence, fence_text
from geomq.mqtt.codec.packets import Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.topics import wildcard_pattern
from geomq.mqtt.session.subscriptions import Subscription, as_of_bridge, subscription_of
from geomq.routing.core.events import ClientGone, ClientMoved, ClientSubscribed, ClientUnsubscribed
from geomq.vocabulary import FENCE_PROPERTY

LEVELS_EACH = 10
"""That filters of a client may have on average: each level takes memory."""


_Due = tuple[Subscription, Reading, Fence | None]


class _Refused(Exception):  # noqa: N818
    def __init__(self, reason: ReasonCode, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Subscribing:
    """Carries out what clients subscribe to and drop."""

    def __init__(self, core: Core, driver: Driver, retention: Retention, fenced: FencedFilters) -> None:
        self._core = core
        self._handle = driver.handle
        self._retention = retention
        self._fenced = fenced

    def subscribe(self, client: Client, packet: Subscribe) -> Iterator[None]:
        """Place all that is asked for and answer; whoever drives it gives others their turn whenever it yields."""
        text = packet.properties.user(FENCE_PROPERTY)
        reasons: list[ReasonCode] = []
        complaint: str | None = None
        due: list[_Due] = []
        qos_max = self._core.policy_at(client.listener).qos_max
        for request in map(as_of_bridge, packet.requests) if client.bridges else packet.requests:
            try:
                subscription, reading, fence, existed = self._place(client, request, packet, text, qos_max)
            except _Refused as refused:
                reasons.append(refused.reason)
                complaint = complaint or str(refused)
                continue
            reasons.append(ReasonCode(subscription.qos))
            if subscription.wants_retained(existed=existed) and not reading.private:
                due.append((subscription, reading, fence))
            if self._core.turns.over():
                self._core.topology_changed()
                yield
        properties = NO_PROPERTIES if complaint is None else Properties(reason_string=complaint)
        self._core.topology_changed()
        self._answer(client, Suback(packet.packet_id, tuple(reasons), properties))
        if due:
            self._core.outbox.when_safe(partial(self._give_retained, client, client.connection, due))

    def _give_retained(self, client: Client, connection: ClientConnection | None, due: list[_Due]) -> None:
        """What is retained comes behind SUBACK."""
        if client.connection is connection:
            for subscription, reading, fence in due:
                self._retention.give(client, subscription, reading, fence)

    def _place(
        self, client: Client, request: SubscribeRequest, packet: Subscribe, text: str | None, qos_max: int
    ) -> tuple[Subscription, Reading, Fence | None, bool]:
        request = _mounted(client, request)
        reading = self._read(request.topic_filter)
        if not reading.private and not client.rights.may_subscribe(reading.plain):
            raise _Refused(ReasonCode.NOT_AUTHORIZED, f"not authorized to subscribe to {reading.plain[:80]!r}")
        fence = self._fence(client, reading, text)
        mine = client.session.subscriptions
        existed = request.topic_filter in mine
        if not existed and not self._core.budget.may_subscribe(len(mine)):
            self._core.counts.memory_refused += 1
            raise _Refused(ReasonCode.QUOTA_EXCEEDED, SHORT_OF_MEMORY)
        limits = self._core.config.limits
        limit = limits.subscriptions_per_client_max
        levels_max = limits.topic_levels_max + LEVELS_EACH * limit
        if not existed and len(mine) >= limit:
            raise _Refused(ReasonCode.QUOTA_EXCEEDED, f"more than {limit} subscriptions")
        if not existed and client.levels + _levels(request.topic_filter) > levels_max:
            raise _Refused(ReasonCode.QUOTA_EXCEEDED, f"more than {levels_max} levels in all subscriptions")
        most = limits.wildcard_patterns_per_client_max
        if not existed and len(mine) >= most and _is_new_pattern(client, reading, most):
            raise _Refused(ReasonCode.QUOTA_EXCEEDED, f"more than {most} arrangements of wildcards")
        subscription = subscription_of(request, packet.properties.subscription_identifiers, qos_max)
        self.take(client, subscription, reading, fence)
        if client.session.durable:
            written = None if fence is None else fence_text(fence)
            self._core.store.put_subscription(client.id, SubscriptionRecord(subscription, written))
        return subscription, reading, fence, existed

    def take(self, client: Client, subscription: Subscription, reading: Reading, fence: Fence | None) -> None:
        """Note the subscription in the session and in routing."""
        mine = client.session.subscriptions
        existed = subscription.topic_filter in mine
        if not existed:
            levels = _levels(subscription.topic_filter)
            client.count_filter(levels, _pattern(reading), 1)
            self._core.filters.add(1, levels)
        mine[subscription.topic_filter] = subscription
        if reading.private:
            return
        key = client.subscription_key(reading.prefix)
        if not existed and client.add_subscription(reading.prefix) and client.location is not None:
            self._handle(ClientMoved(key, client.location))
        self._fenced.note(key, reading.plain, fenced=fence is not None)
        self._handle(ClientSubscribed(key, reading.plain, fence, reading.group))

    def _read(self, topic_filter: str) -> Reading:
        try:
            reading = read_filter(topic_filter)
        except TopicError as error:
            raise _Refused(ReasonCode.TOPIC_FILTER_INVALID, str(error)) from None
        if reading.private and reading.group is not None:
            raise _Refused(ReasonCode.TOPIC_FILTER_INVALID, "a filter for one client's own topics cannot be shared")
        if topic_filter.count("/") >= self._core.config.limits.topic_levels_max:
            raise _Refused(ReasonCode.TOPIC_FILTER_INVALID, "the filter has too many levels")
        return reading

    def _fence(self, client: Client, reading: Reading, text: str | None) -> Fence | None:
        if reading.fence_name is not None:
            fence = client.fences.get(reading.fence_name)
            if fence is None:
                raise _Refused(
                    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
                    f"no fence named {reading.fence_name!r}; publish it to $geo/fence/{reading.fence_name} first",
                )
            return fence
        if text is None:
            return None
        try:
            return self._core.fence_texts[text]
        except GeometryError as error:
            self._core.counts.geo_errors += 1
            raise _Refused(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(error)) from None

    def unsubscribe(self, client: Client, packet: Unsubscribe) -> Iterator[None]:
        """Drop all that is named and answer; driven as `subscribe` is."""
        reasons: list[ReasonCode] = []
        for topic_filter in packet.topic_filters:
            try:
                reasons.append(self._drop(client, mounted_filter(client.session.mount, topic_filter)))
            except TopicError:
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
            if self._core.turns.over():
                self._core.topology_changed()
                yield
        self._core.topology_changed()
        self._answer(client, Unsuback(packet.packet_id, tuple(reasons)))

    def _drop(self, client: Client, topic_filter: str) -> ReasonCode:
        if client.session.subscriptions.pop(topic_filter, None) is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        reading = read_filter(topic_filter)
        levels = _levels(topic_filter)
        client.count_filter(levels, _pattern(reading), -1)
        self._core.filters.add(-1, -levels)
        if not reading.private:
            key = client.subscription_key(reading.prefix)
            self._fenced.note(key, reading.plain, fenced=False)
            self._handle(ClientUnsubscribed(key, reading.plain, reading.group))
            if client.remove_subscription(reading.prefix):
                self._handle(ClientGone(key))
        if client.session.durable:
            self._core.store.delete_subscription(client.id, topic_filter)
        return ReasonCode.SUCCESS

    def lose(self, client: Client) -> None:
        """The session is over, or another broker's: where its fences are makes no difference here any more."""
        self._core.filters.add(-len(client.session.subscriptions), -client.levels)
        for whole in client.session.subscriptions:
            reading = read_filter(whole)
            if not reading.private:
                self._fenced.note(client.subscription_key(reading.prefix), reading.plain, fenced=False)

    def forget(self, client: Client) -> None:
        """The session is over: routing is to forget every key of it."""
        for key in client.subscription_keys():
            self._handle(ClientGone(key))

    def _answer(self, client: Client, packet: Suback | Unsuback) -> None:
        if client.connection is not None:
            self._core.outbox.hold(client.connection, client.session.reply(packet))


def _mounted(client: Client, request: SubscribeRequest) -> SubscribeRequest:
    """What the client asks for, in the broker's words."""
    if not client.session.mount:
        return request
    try:
        whole = mounted_filter(client.session.mount, request.topic_filter)
    except TopicError as error:
        raise _Refused(ReasonCode.TOPIC_FILTER_INVALID, str(error)) from None
    return structs.replace(request, topic_filter=whole)


def _pattern(reading: Reading) -> Pattern:
    return reading.prefix, wildcard_pattern(reading.plain)


def _is_new_pattern(client: Client, reading: Reading, most: int) -> bool:
    """Whether the filter would be one pattern more than the client may have."""
    known = client.known_patterns(_pattern(read_filter(whole)) for whole in client.session.subscriptions)
    return len(known) >= most and _pattern(reading) not in known


def _levels(topic_filter: str) -> int:
    return topic_filter.count("/") + 1
