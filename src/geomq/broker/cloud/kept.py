"""What a broker keeps on disk of its dealings with the cloud, so that a crash loses nothing.

Two things: events of QoS 1 and 2 that the cloud has not acknowledged, and the filters it holds for this broker. A
filter whose SUBSCRIBE or UNSUBSCRIBE was not acknowledged is noted as uncertain; after a restart it is unsubscribed
before anything else.
"""

from collections.abc import Callable

from geomq.broker.peers.store import Notes, PeerStore
from geomq.broker.storage.store import Store
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, Event
from geomq.routing.wire.link import Data

FILTER = "cloud-filter/"
UNCERTAIN = 0
NOT_KEPT = -1


class NothingKept:
    """A broker that keeps everything in memory only."""

    durable = False

    def events(self) -> list[Event]:
        """What waited for the cloud when the broker was last stopped; they have the numbers from 0 on."""
        return []

    def filters(self) -> dict[str, int]:
        """The filters the cloud held then, with the number each was subscribed under, or UNCERTAIN."""
        return {}

    def keep_event(self, number: int, event: Event) -> None: ...

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back when everything kept so far is on disk: what a crash makes undone nobody may have heard of."""
        callback()

    def events_done(self, number: int) -> None:
        """All events before `number` are done with."""

    def keep_filter(self, topic_filter: str, number: int) -> None: ...

    def drop_filter(self, topic_filter: str) -> None: ...


class CloudKept(NothingKept):
    """The notes of one broker about its cloud."""

    durable = True

    def __init__(
        self, cloud: BrokerId, peers: PeerStore, store: Store, *, notes: Notes, schedule: Callable[[], None]
    ) -> None:
        self._cloud = cloud
        self._peers = peers
        self._store = store
        self._notes = notes
        self._schedule = schedule

    def events(self) -> list[Event]:
        waiting = self._peers.load_outbox(self._cloud, self._notes)
        return [message.event for message in waiting if isinstance(message, ForwardEvent)]

    def filters(self) -> dict[str, int]:
        kept = self._notes.get(FILTER + self._cloud, {})
        return {key.decode(errors="replace"): int.from_bytes(value, "big") for key, value in kept.items()}

    def keep_event(self, number: int, event: Event) -> None:
        self._peers.keep(self._cloud, Data(0, number, ForwardEvent(event)))

    def when_safe(self, callback: Callable[[], None]) -> None:
        self._peers.when_safe(callback)

    def events_done(self, number: int) -> None:
        self._peers.acknowledged(self._cloud, number)

    def keep_filter(self, topic_filter: str, number: int) -> None:
        self._store.put_note(FILTER + self._cloud, topic_filter.encode(), number.to_bytes(4, "big"))
        self._schedule()

    def drop_filter(self, topic_filter: str) -> None:
        self._store.delete_note(FILTER + self._cloud, topic_filter.encode())
        self._schedule()


class OpenEvents:
    """Numbers the events for the cloud and notes which of them are done; those of QoS 0 are not kept."""

    def __init__(self, kept: NothingKept) -> None:
        self._kept = kept
        self._open: dict[int, None] = {}
        self._next = 0

    def add(self, event: Event, *, noted: bool = False) -> int:
        """The event's number; `noted` says that it is on disk already."""
        if not event.qos:
            return NOT_KEPT
        number = self._next
        self._next += 1
        self._open[number] = None
        if not noted:
            self._kept.keep_event(number, event)
        return number

    def done(self, number: int) -> None:
        """The cloud has the event, or never will."""
        if number != NOT_KEPT:
            self._open.pop(number, None)
            self._kept.events_done(next(iter(self._open), self._next))
