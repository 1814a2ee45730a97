"""Clients in places: moves, named fences, crossings, and telling a client what only concerns it.

What is sent on `$geo/enter/...`, `$geo/leave/...` and `$geo/error` reaches this one client, if it subscribed to it.
"""

from collections.abc import Callable, Iterator

from geomq.broker.clients.delivery import Delivery
from geomq.broker.clients.geotopics import Reading, from_prefix, read_filter
from geomq.broker.clients.retention import Retention
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.state.client import Client
from geomq.errors import GeometryError
from geomq.geo import Location, fence_text, location_text
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.subscriptions import Terms, merge
from geomq.routing.core.events import ClientMoved, ClientSubscribed
from geomq.vocabulary import ENTER_PREFIX, ERROR_TOPIC, LEAVE_PREFIX


class GeoContext:
    """Keeps every client's place and fences up to date, in routing and in the store; says who `moved`."""

    def __init__(
        self,
        core: Core,
        driver: Driver,
        delivery: Delivery,
        retention: Retention,
        *,
        moved: Callable[[Client], None],
    ) -> None:
        self._core = core
        self._handle = driver.handle
        self._moved = moved
        self._delivery = delivery
        self._retention = retention

    def move(self, client: Client, location: Location | None) -> None:
        """The client is somewhere else now."""
        before = client.location
        self._core.counts.location_updates += 1
        if location == before:
            return
        client.move(location)
        if client.session.durable:
            self._core.moved[client.id] = client
        if client.prefixes:
            for key in client.subscription_keys():
                self._handle(ClientMoved(key, location))
        else:
            self._handle(ClientMoved(client.id, location))
        if client.fences:
            self._cross(client)
        self._retention.entered(client, before, location)
        self._moved(client)

    def _cross(self, client: Client) -> None:
        place = client.location
        payload = b"" if place is None else location_text(place).encode()
        left, entered = client.cross()
        for name in left:
            self.tell(client, LEAVE_PREFIX + name, payload)
        for name in entered:
            self.tell(client, ENTER_PREFIX + name, payload)

    def define_fence(self, client: Client, name: str, text: str) -> None:
        """Give a fence of this client a shape, another shape, or none."""
        if not text.strip():
            self._forget_fence(client, name)
            return
        limit = self._core.config.limits.named_fences_per_client_max
        if name not in client.fences and len(client.fences) >= limit:
            raise GeometryError(f"more than {limit} named fences")
        fence = self._core.fence_texts[text]
        client.define_fence(name, fence)
        if client.session.durable:
            self._core.store.put_fence(client.id, name, fence_text(fence))
            self._core.outbox.schedule()
        self._renew(client, name)
        self._cross(client)

    def _forget_fence(self, client: Client, name: str) -> None:
        if any(_readings(client, name)):
            raise GeometryError(f"fence {name!r} is still used by a subscription")
        client.define_fence(name, None)
        if client.session.durable:
            self._core.store.delete_fence(client.id, name)
            self._core.outbox.schedule()

    def _renew(self, client: Client, name: str) -> None:
        """Subscriptions through this fence follow its new shape."""
        for reading in _readings(client, name):
            key = client.subscription_key(reading.prefix)
            self._handle(ClientSubscribed(key, reading.plain, client.fences[name], reading.group))
        self._core.topology_changed()

    def complain(self, client: Client, text: str) -> None:
        """Tell a client that cannot be told by a reason code what was wrong with its geometry."""
        self._core.counts.geo_errors += 1
        self.tell(client, ERROR_TOPIC, text.encode())

    def tell(self, client: Client, topic: str, payload: bytes) -> None:
        """Deliver to this client alone, if it subscribed to the topic."""
        mine = client.session.subscriptions
        matching = [mine[each] for each in filters_of(topic) if each in mine]
        terms = merge(matching, qos=1, retain=False, own=False)
        if terms is not None:
            fanout = Fanout(ApplicationMessage(topic, payload, 1), self._core.now_s())
            self._delivery.send(client, fanout, Terms(terms.qos, False, terms.identifiers))


def filters_of(topic: str) -> list[str]:
    """Every filter that matches a `$` topic; few, if it has few levels, however many a client has."""
    first, *levels = topic.split("/")
    found, heads = [], [first]
    for level in levels:
        found += [f"{head}/#" for head in heads]
        heads = [f"{head}/{each}" for head in heads for each in (level, "+")]
    return [*found, *heads, *(f"{head}/#" for head in heads)]


def _readings(client: Client, name: str) -> Iterator[Reading]:
    """The client's subscriptions through its fence of this name."""
    prefix = from_prefix(name)
    for whole in client.session.subscriptions:
        if prefix in whole:
            reading = read_filter(whole)
            if reading.fence_name == name:
                yield reading
