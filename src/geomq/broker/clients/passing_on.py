"""What a session leaves behind that ends: messages of share groups that it never had go to other members.

MQTT 5 (4.8.2) asks for it at QoS 1, and at QoS 2 for what was never sent: what may have been received must not go to
anybody else. Who gets it is decided by routing; if nobody is left it is dropped with the rest, counted.
"""

import logging

from geomq.broker.clients.geotopics import read_filter
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.errors import GeomqError
from geomq.geo import Location
from geomq.mqtt.codec.properties import NO_PROPERTIES, encode_properties
from geomq.mqtt.codec.types import PacketType
from geomq.mqtt.session.message import ApplicationMessage, Shared
from geomq.mqtt.session.outbound import may_go_elsewhere
from geomq.mqtt.session.session import Session
from geomq.routing.core.events import SharedReturned
from geomq.routing.core.model import ClientId, Event, EventId

log = logging.getLogger("geomq.broker")


class PassingOn:
    """Finds others for what a client of this broker did not get."""

    def __init__(self, core: Core, driver: Driver) -> None:
        self._core = core
        self._hand_on = driver.hand_on

    def pass_on(self, session: Session) -> int:
        """The session is over, and its client is a member of nothing any more; how many messages others get."""
        deliveries, _ = session.unfinished()
        waiting = [delivery.message for delivery in deliveries if may_go_elsewhere(delivery)]
        return sum([self._pass_on(each, each.shared) for each in waiting if each.shared is not None])

    def _pass_on(self, message: ApplicationMessage, shared: Shared) -> bool:
        try:
            returned = self._returned(message, shared)
        except GeomqError as error:
            log.warning("a shared message of %s cannot go to another member: %s", message.topic, error)
            return False
        return returned is not None and self._hand_on(returned, message)

    def _returned(self, message: ApplicationMessage, shared: Shared) -> SharedReturned | None:
        reading = read_filter(shared.topic_filter)
        if reading.group is None or message.expired(self._core.now_s()):
            return None
        properties = b""
        if self._core.links.active and message.properties is not NO_PROPERTIES:
            properties = encode_properties(message.properties, PacketType.PUBLISH)
        event = Event(
            EventId(self._core.node.me, self._core.node.epoch, 0),
            message.topic,
            ClientId(shared.publisher),
            None if shared.place is None else Location(*shared.place),
            None if shared.fence is None else self._core.fence_texts.written(shared.fence),
            message.payload,
            message.qos,
            message.retain,
            properties,
            due_ms=None if message.expires_at is None else int(message.expires_at * 1000),
        )
        return SharedReturned(reading.group, reading.plain, event)
