"""QoS 1 and 2 towards one receiver: packet identifiers, flow control, the bounded queue, and redelivery.

Decides what is sent next and in which order; encodes nothing. In-flight messages survive a lost connection
and are sent again, in their first order, before anything new. Every step that must survive a crash goes to
the journal.
"""

from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import islice
from typing import Final

import msgspec

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.session.backlog import Backlog
from geomq.mqtt.session.changes import DeliveryAdded, DeliveryReleased, DeliveryRemoved, DeliverySent, Journal
from geomq.mqtt.session.message import ApplicationMessage

PACKET_ID_MAX: Final = 65_535
PACKET_IDS: Final = range(1, PACKET_ID_MAX + 1)
LOOKED_AT: Final = 64
"""Messages at the head of a queue that are asked whether they may go."""


class Phase(IntEnum):
    QUEUED = 0
    SENT = 1
    RELEASED = 2
    DONE = 3


_QUEUED, _SENT, _RELEASED, _DONE = Phase


class InFlight(msgspec.Struct, gc=False, eq=False):
    """One message on its way to one receiver; it counts for `size` bytes."""

    number: int
    message: ApplicationMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    size: int
    packet_id: int = 0
    phase: Phase = _QUEUED
    counted: bool = False


class Step:
    """Something to send now: a PUBLISH (`again` with DUP set), or a PUBREL once the phase is RELEASED."""

    __slots__ = ("again", "delivery")

    def __init__(self, delivery: InFlight, *, again: bool) -> None:
        self.delivery = delivery
        self.again = again


class Outbound:
    """The sending half of a session. While `stalled`, nothing is sent although the window may be open. What it holds
    counts in `backlog`, until `close`. New messages get their identifiers from `packet_ids`."""

    __slots__ = (
        "_backlog",
        "_client_id",
        "_closed",
        "_first_id",
        "_flight_bytes",
        "_flights",
        "_journal",
        "_lapsed",
        "_last_id",
        "_next_id",
        "_next_number",
        "_queue",
        "_queued_bytes",
        "_quota",
        "_repeat",
        "bytes_max",
        "connected",
        "dropped",
        "expired",
        "queue_max",
        "stalled",
    )

    def __init__(
        self,
        client_id: str,
        *,
        queue_max: int,
        bytes_max: int,
        journal: Journal | None = None,
        packet_ids: range = PACKET_IDS,
        backlog: Backlog | None = None,
    ) -> None:
        self._client_id = client_id
        self._journal = journal
        self._backlog = backlog or Backlog()
        self._closed = False
        self._flights: dict[int, InFlight] = {}
        self._queue: deque[InFlight] = deque()
        self._repeat: deque[InFlight] | None = None
        self._flight_bytes = 0
        self._queued_bytes = 0
        self._quota = 0
        self._first_id, self._last_id = packet_ids.start, packet_ids.stop - 1
        self._next_id = self._first_id
        self._next_number = 1
        self.queue_max = queue_max
        self.bytes_max = bytes_max
        self.connected = False
        self.stalled = False
        self.dropped = 0
        self.expired = 0
        self._lapsed: list[InFlight] = []

    def __len__(self) -> int:
        """Messages not yet finished, queued and in flight."""
        return len(self._flights) + len(self._queue)

    @property
    def waiting(self) -> bool:
        """Whether `pump` may have something to send."""
        return bool(self._queue or self._repeat)

    @property
    def pending_bytes(self) -> int:
        """What those not yet finished take in packets."""
        return self._flight_bytes + self._queued_bytes

    @property
    def full(self) -> bool:
        return not self.has_room(0)

    def unfinished(self) -> list[InFlight]:
        """Everything queued or in flight, in the order of `number`."""
        return sorted((*self._flights.values(), *self._queue), key=lambda delivery: delivery.number)

    def close(self) -> None:
        """The session is over with all that is in it."""
        self._backlog.remove(self.pending_bytes, len(self))
        self._backlog, self._closed = Backlog(), True

    def forget_journal(self) -> None:
        """The session will not outlive its connection, so nothing more needs to be remembered."""
        self._journal = None

    def restore(self, delivery: InFlight) -> None:
        """Put back what a store remembered; call in the order of `number`."""
        self._next_number = max(self._next_number, delivery.number + 1)
        self._backlog.add(delivery.size)
        if delivery.packet_id:
            self._flights[delivery.packet_id] = delivery
            self._flight_bytes += delivery.size
            if self._first_id <= delivery.packet_id <= self._last_id:
                self._next_id = self._after(delivery.packet_id)
        else:
            self._queue.append(delivery)
            self._queued_bytes += delivery.size

    def connect(self, window: int) -> None:
        """A new network connection: the quota starts afresh and everything in flight is due again."""
        self.connected = True
        self.stalled = False
        self._quota = window
        for flight in self._flights.values():
            flight.counted = False
        self._repeat = deque(self._flights.values()) if self._flights else None

    def disconnect(self) -> None:
        self.connected = False
        self._repeat = None
        self._quota = 0

    def push(
        self,
        message: ApplicationMessage,
        qos: int,
        *,
        retain: bool = False,
        identifiers: tuple[int, ...] = (),
        size: int | None = None,
        beyond: bool = False,
    ) -> InFlight | None:
        """Take a message: its delivery, which is SENT if it is to be sent at once. None if the queue is full, unless it
        is to be taken `beyond` its end."""
        size = message.wire_size if size is None else size
        immediate = not self._queue and not self.stalled and not self._repeat and self._is_open()
        if not immediate and not beyond and not self.has_room(size):
            return None
        delivery = InFlight(self._next_number, message, qos, retain, identifiers, size)
        self._next_number += 1
        self._backlog.add(size)
        if immediate:
            self._launch(delivery)
        else:
            self._queue.append(delivery)
            self._queued_bytes += size
        if self._journal is not None:
            self._note_added(delivery, self._journal)
        return delivery

    def fits(self, messages: int, size: int) -> bool:
        """Whether there is room in the queue, the last messages of it not counted: so many, of this size."""
        there, there_bytes = len(self._queue) - messages, self._queued_bytes - size
        return self._closed or (there < self.queue_max and there_bytes < self._queue_bytes_max)

    @property
    def overfull(self) -> bool:
        """Whether twice as much waits as there should."""
        return len(self._queue) >= 2 * self.queue_max or self._queued_bytes >= 2 * self._queue_bytes_max

    @property
    def _queue_bytes_max(self) -> float:
        """What may be queued, as the settings and the memory are now."""
        return min(self.bytes_max, self._backlog.each_bytes_max)

    def make_room(self, size: int, may_go: Callable[[ApplicationMessage], bool]) -> tuple[list[InFlight], bool]:
        """Give up the oldest that may go and are among the first few, until there is room for one of this size or as
        much has gone: what went, and whether that is enough."""
        gone: list[InFlight] = []
        freed = 0
        while size <= self._queue_bytes_max and not self.has_room(size) and not (gone and freed >= size):
            place = next((n for n, each in enumerate(islice(self._queue, LOOKED_AT)) if may_go(each.message)), None)
            if place is None:
                break
            gone.append(self._queue[place])
            del self._queue[place]
            freed += gone[-1].size
            self._queued_bytes -= gone[-1].size
            self._finish(gone[-1])
        self.dropped += len(gone)
        return gone, self.has_room(size) or (bool(gone) and freed >= size)

    def adopt(self, sent: InFlight) -> bool:
        """Take over a message that another session sent and that may have been received: it is due once more, and
        `pump` says so. False if too many are in flight."""
        if len(self._flights) >= (self._last_id - self._first_id) // 2:
            return False
        delivery = InFlight(self._next_number, sent.message, sent.qos, sent.retain, sent.identifiers, sent.size)
        self._next_number += 1
        self._backlog.add(delivery.size)
        self._launch(delivery)
        self._quota += 1
        delivery.counted = False
        if self.connected:
            self._repeat = self._repeat or deque()
            self._repeat.append(delivery)
        if self._journal is not None:
            self._note_added(delivery, self._journal)
        return True

    def _note_added(self, added: InFlight, journal: Journal) -> None:
        journal.append(
            DeliveryAdded(
                self._client_id,
                added.number,
                added.message,
                added.qos,
                added.retain,
                added.identifiers,
                added.packet_id,
            )
        )

    def _is_open(self) -> bool:
        """Whether one more may be under way. What a receiver never finishes counts, too, after its connection ended:
        there are only so many identifiers, and only so much memory, whatever window it asks for."""
        return (
            self._quota > 0
            and self._flight_bytes < self.bytes_max
            and len(self._flights) <= self._last_id - self._first_id
        )

    def has_room(self, size: int) -> bool:
        """Whether a message of this size may wait."""
        return len(self._queue) < self.queue_max and self._queued_bytes + size <= self._queue_bytes_max

    def pump(self, now: float) -> list[Step]:
        """Everything that may be sent now: repeats first, then the queue, as far as the quota reaches."""
        steps: list[Step] = []
        if self.stalled:
            return steps
        self._pump_repeats(steps)
        queue = self._queue
        while queue and not self._repeat and self._is_open():
            delivery = queue.popleft()
            self._queued_bytes -= delivery.size
            if delivery.message.expired(now):
                self.expired += 1
                self._finish(delivery)
                self._lapsed.append(delivery)
                continue
            self._launch(delivery)
            if self._journal is not None:
                self._journal.append(DeliverySent(self._client_id, delivery.number, delivery.packet_id))
            steps.append(Step(delivery, again=False))
        return steps

    def take_lapsed(self) -> list[InFlight]:
        """What expired in the queue since this was last asked."""
        if not self._lapsed:
            return self._lapsed
        lapsed, self._lapsed = self._lapsed, []
        return lapsed

    def _pump_repeats(self, steps: list[Step]) -> None:
        repeat = self._repeat
        while repeat:
            delivery = repeat[0]
            if delivery.phase is _SENT:
                if not self._quota:
                    return
                self._quota -= 1
                delivery.counted = True
            repeat.popleft()
            if delivery.phase is not _DONE:
                steps.append(Step(delivery, again=True))
        self._repeat = None

    def acknowledge(self, packet_ids: Iterable[int]) -> bool:
        """PUBACKs that came together: whether any of them finished a message."""
        flights, journal, finished = self._flights, self._journal, False
        for packet_id in packet_ids:
            delivery = flights.get(packet_id)
            if delivery is None:
                continue
            if delivery.qos != 1:
                raise ProtocolViolation("PUBACK answers a QoS 2 message")
            finished = True
            del flights[packet_id]
            self._flight_bytes -= delivery.size
            self._quota += delivery.counted and self.connected
            delivery.phase = _DONE
            self._backlog.remove(delivery.size)
            if journal is not None:
                journal.append(DeliveryRemoved(self._client_id, delivery.number))
        return finished

    def receive(self, packet_id: int, *, failed: bool) -> bool:
        """PUBREC: whether the identifier is known and PUBREL is due (it is not after a failure)."""
        delivery = self._flights.get(packet_id)
        if delivery is None:
            return False
        if delivery.qos != 2:
            raise ProtocolViolation("PUBREC answers a QoS 1 message")
        if failed:
            self._land(delivery)
            return False
        if delivery.phase is _SENT:
            delivery.phase = _RELEASED
            # PUBRELs are repeated in the order of the PUBRECs, so the flight moves to the end.
            del self._flights[packet_id]
            self._flights[packet_id] = delivery
            if self._journal is not None:
                self._journal.append(DeliveryReleased(self._client_id, delivery.number, packet_id))
        return True

    def complete(self, packet_id: int) -> bool:
        """PUBCOMP: whether it finished a message."""
        delivery = self._flights.get(packet_id)
        if delivery is None:
            return False
        if delivery.phase is not _RELEASED:
            raise ProtocolViolation("PUBCOMP without PUBREL")
        self._land(delivery)
        return True

    def refuse(self) -> None:
        """A message was not taken."""
        self.dropped += 1

    def abandon(self, delivery: InFlight) -> None:
        """The message cannot be sent to this receiver (too large): behave as if it had been."""
        self.dropped += 1
        self._land(delivery)

    def withdraw(self, unwanted: Callable[[ApplicationMessage], bool]) -> list[InFlight]:
        """Give up the messages that are not to be sent any more, and without a connection also those not to be sent
        again; they are returned."""
        gone = [delivery for delivery in self._queue if unwanted(delivery.message)]
        if gone:
            self._queue = deque(delivery for delivery in self._queue if not unwanted(delivery.message))
        for delivery in gone:
            self._queued_bytes -= delivery.size
            self._finish(delivery)
        for delivery in () if self.connected else tuple(self._flights.values()):
            if delivery.phase is _SENT and unwanted(delivery.message):
                self._land(delivery)
                gone.append(delivery)
        return gone

    def _launch(self, delivery: InFlight) -> None:
        self._quota -= 1
        self._flight_bytes += delivery.size
        packet_id, flights = self._next_id, self._flights
        while packet_id in flights:
            packet_id = self._after(packet_id)
        self._next_id = packet_id + 1 if packet_id < self._last_id else self._first_id
        delivery.packet_id = packet_id
        delivery.phase = _SENT
        delivery.counted = True
        flights[packet_id] = delivery

    def _after(self, packet_id: int) -> int:
        return packet_id + 1 if packet_id < self._last_id else self._first_id

    def _land(self, delivery: InFlight) -> None:
        del self._flights[delivery.packet_id]
        self._flight_bytes -= delivery.size
        self._quota += delivery.counted and self.connected
        self._finish(delivery)

    def _finish(self, delivery: InFlight) -> None:
        delivery.phase = _DONE
        self._backlog.remove(delivery.size)
        if self._journal is not None:
            self._journal.append(DeliveryRemoved(self._client_id, delivery.number))


def may_go_elsewhere(delivery: InFlight) -> bool:
    """Whether another member of its share group may get it once the session ends; at QoS 2 what was never sent."""
    return delivery.phase is _QUEUED or (delivery.phase is _SENT and delivery.qos == 1)
