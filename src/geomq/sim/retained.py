"""The retained events of every simulated broker, as its driver keeps them: on a disk that survives crashes.

Clocks of brokers differ by up to half a minute, since versions must not depend on them.
"""

import random

import msgspec

from geomq.routing.core.actions import ForgetNote, KeepNote, SendRetained, StoreRetained
from geomq.routing.core.events import RetainedChanged, RetainedStored
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.node import Node
from geomq.routing.retained.sync import NOTE
from geomq.routing.retained.versions import PutRetained

SKEW_MS = 30_000
SLICE = 2
"""Few topics are sent at a time, so that slices are simulated, too."""


class RetainedDisks:
    """What each broker retains, and the versions it keeps."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.events: dict[BrokerId, dict[str, Event]] = {}
        self._notes: dict[BrokerId, dict[bytes, bytes]] = {}

    def load(self, node: Node) -> None:
        """A broker starts, perhaps again."""
        node.retained.slice = SLICE
        node.retained.load(self._notes.setdefault(node.me, {}), self.events.setdefault(node.me, {}))

    def published(self, node: Node, event: Event, now_ms: int) -> RetainedChanged:
        """An own client set or deleted what is retained."""
        self._keep(node.me, event)
        skew_ms = random.Random(f"{self._seed}/{node.me}/clock").randrange(SKEW_MS)
        return RetainedChanged(event.topic, now_ms + skew_ms, not event.payload, event.id)

    def store(self, broker: BrokerId, action: StoreRetained) -> RetainedStored:
        self._keep(broker, action.event)
        return RetainedStored(action.event, action.published)

    def _keep(self, broker: BrokerId, event: Event) -> None:
        if event.payload:
            self.events[broker][event.topic] = event
        else:
            self.events[broker].pop(event.topic, None)

    def message(self, broker: BrokerId, action: SendRetained) -> PutRetained:
        event_id = EventId(action.version.origin, 0, action.version.time_ms)
        held = self.events[broker].get(action.topic)
        if held is None:
            held = Event(event_id, action.topic, ClientId(""), None, None, retain=True)
        return PutRetained(msgspec.structs.replace(held, id=event_id), None, action.published)

    def note(self, broker: BrokerId, action: KeepNote | ForgetNote) -> None:
        if action.kind == NOTE:
            if isinstance(action, KeepNote):
                self._notes[broker][action.key] = action.value
            else:
                del self._notes[broker][action.key]
