"""A shorter way for plain events of QoS 1 and 2 in a broker without peers.

The routing core is asked once per topic; its answer holds as long as the routes of the short way for QoS 0 do.
Sessions, disk and acknowledgements are those of the ordinary way: an event is kept for those who are away, too.
"""

from geomq.broker.clients import Client
from geomq.broker.core import Core
from geomq.broker.delivery import PLAIN_TERMS, Delivery
from geomq.broker.fastpath import ROUTES_MAX, FastPath
from geomq.mqtt.message import Fanout, Message
from geomq.mqtt.topics import REMEMBERED_CHARS_MAX

Receivers = tuple[tuple[Client, int], ...]
"""Clients and the QoS of their subscriptions."""
RECEIVERS_MAX = 1_000_000
"""Receivers that are remembered for all topics; topics with the same receivers share theirs."""


class FastSure:
    """Remembers who gets the events of a topic; None if that has to be asked each time."""

    def __init__(self, core: Core, delivery: Delivery, fast: FastPath) -> None:
        self._core = core
        self._delivery = delivery
        self._fast = fast
        self._receivers: dict[str, Receivers | None] = {}
        self._alike: dict[Receivers, Receivers] = {}
        self._count = self._generation = 0

    def send(self, message: Message) -> int | None:
        """Send a plain event to everybody who gets it; to how many, or None if that is not known here."""
        if self._generation != self._fast.generation:
            return None
        receivers = self._receivers.get(message.topic)
        if receivers is None:
            return None
        self._fast.drain()
        fanout, send, qos = Fanout(message, self._core.wall_s()), self._delivery.send, message.qos
        return sum([send(client, fanout, PLAIN_TERMS[min(qos, theirs)]) for client, theirs in receivers])

    def learn(self, topic: str) -> None:
        """A plain event on this topic was sent; if it went the ordinary way, the next will go to the same clients."""
        if self._generation != self._fast.generation:
            self._generation = self._fast.generation
            self._forget()
        if topic in self._receivers or len(topic) > REMEMBERED_CHARS_MAX:
            return
        if len(self._receivers) >= ROUTES_MAX or self._count >= RECEIVERS_MAX:
            self._forget()
        if self._core.links is None and not self._fast.is_followed():
            found = self._fast.plain_receivers(topic, self._delivery.last)
            self._receivers[topic] = None if found is None else self._shared(tuple(found.items()))

    def _shared(self, receivers: Receivers) -> Receivers:
        if receivers not in self._alike:
            self._alike[receivers] = receivers
            self._count += len(receivers)
        return self._alike[receivers]

    def _forget(self) -> None:
        self._receivers.clear()
        self._alike.clear()
        self._count = 0
