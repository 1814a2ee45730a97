"""Carries out what routing decides about retained events: keeps those of peers, and fills in what is sent to peers.

Which version of a topic's event is the latest, and who is sent what, is `routing/retained/sync.py`'s affair.
"""

from collections.abc import Mapping

from geomq.broker.clients.delivery import message_of_event
from geomq.broker.clients.retention import About, Retention
from geomq.broker.core import Core
from geomq.mqtt.codec.properties import NO_PROPERTIES, encode_properties
from geomq.mqtt.codec.types import PacketType
from geomq.routing.core.actions import SendRetained, StoreRetained
from geomq.routing.core.events import RetainedStored
from geomq.routing.core.model import ClientId, Event, EventId, Version
from geomq.routing.retained.sync import NOTE
from geomq.routing.retained.versions import PutRetained


class RetainedCopies:
    """Between the routing node of one broker and the retained events it keeps."""

    def __init__(self, core: Core, retention: Retention) -> None:
        self._core = core
        self._retention = retention

    def load(self, notes: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """There may be peers: begin with the versions that the store remembered."""
        self._core.node.retained.load(notes.get(NOTE, {}), self._retention.topics())

    def refuse(self) -> None:
        """A peer's event was refused."""
        self._core.counts.retained_refused += 1

    def fill_in(self, action: SendRetained) -> PutRetained:
        """The message to send to a peer."""
        return PutRetained(*self._event(action.topic, action.version), action.published)

    def store(self, action: StoreRetained) -> RetainedStored | None:
        """Keep a peer's event; None if there is no room for it."""
        event = action.event
        message = message_of_event(event, self._core.now_s())
        about = About(event.fence, event.location, event.publisher or None, action.user)
        if not self._retention.put(message, about):
            return None  # else others would learn from here that it was deleted
        return RetainedStored(event, action.published)

    def _event(self, topic: str, version: Version) -> tuple[Event, str | None]:
        """The topic's event as peers receive it, and its publisher's user; a deleted one has no payload."""
        event_id = EventId(version.origin, 0, version.time_ms)
        message, about = self._retention.get(topic)
        if message is None:
            return Event(event_id, topic, ClientId(""), None, None, retain=True), None
        properties = message.properties
        event = Event(
            event_id,
            topic,
            ClientId(about.client_id or ""),
            about.location,
            about.fence,
            message.payload,
            message.qos,
            True,
            b"" if properties == NO_PROPERTIES else encode_properties(properties, PacketType.PUBLISH),
            int(self._core.wall_s() * 1000),
            None if message.expires_at is None else int(message.expires_at * 1000),
        )
        return event, about.user
