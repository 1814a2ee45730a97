"""What waits to be said to the cloud, in order and bounded: beyond the bound the oldest events are dropped.

Events can be withheld while everything else goes on: a cloud that forgot everybody would take them while nobody has
subscribed again.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from geomq.broker.cloud_kept import NothingKept
from geomq.mqtt.packets import Pingreq, Publish, Subscribe, Unsubscribe
from geomq.routing.model import Event

OVERHEAD_BYTES = 256


class Op(msgspec.Struct, eq=False):
    """Something that is to be said to the cloud, or was and is not acknowledged yet."""

    packet: Publish | Subscribe | Unsubscribe | Pingreq
    size: int = 0
    """Of an event; 0 for everything else."""
    number: int | None = None
    """Of an event that is kept until it is acknowledged."""
    place: int = 0
    released: bool = False
    """A QoS 2 publish that the cloud has; only the end of the handshake is missing."""
    mark: int | None = None
    """The token of a ping of the strategy."""

    @property
    def is_event(self) -> bool:
        return self.size > 0

    @property
    def subject(self) -> str:
        match self.packet:
            case Publish(topic=topic):
                return topic[:80]
            case Subscribe(requests=requests):
                return requests[0].topic_filter
            case Unsubscribe(topic_filters=topic_filters):
                return topic_filters[0]
        return "ping"


class CloudOutbox:
    """The queue, and which of its events are not done with yet."""

    def __init__(self, kept: NothingKept, *, events_max: int, bytes_max: int, complain: Callable[[str], None]) -> None:
        self.dropped = 0
        self.events = 0
        self._kept = kept
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._complain = complain
        self._bytes = 0
        self._queue: deque[Op] = deque()
        self._withheld: deque[Op] | None = None
        self._next_number = 0
        self._open: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def first(self) -> Op:
        return self._queue[0]

    def ops(self) -> tuple[Op, ...]:
        return (*(self._withheld or ()), *self._queue)

    def add_event(self, packet: Publish, event: Event, *, kept: bool = False) -> None:
        """Take in an event; `kept` is one from before a restart, noted already."""
        op = Op(packet, size=len(packet.payload) + len(packet.topic) + OVERHEAD_BYTES)
        while self.events and (self.events >= self._events_max or self._bytes + op.size > self._bytes_max):
            self._drop_oldest()
        if event.qos:
            op.number = self._next_number
            self._next_number += 1
            self._open[op.number] = None
            if not kept:
                self._kept.keep_event(op.number, event)
        self._count(op, 1)
        (self._queue if self._withheld is None else self._withheld).append(op)

    def add(self, op: Op) -> None:
        self._queue.append(op)

    def put_back(self, op: Op) -> None:
        """An event that was sent in vain is the first again."""
        self._count(op, 1)
        self._queue.appendleft(op)

    def take(self) -> Op:
        op = self._queue.popleft()
        self._count(op, -1)
        return op

    def done(self, op: Op) -> None:
        """The cloud has the event, or never will."""
        if op.number is not None:
            self._open.pop(op.number, None)
            self._kept.events_done(next(iter(self._open), self._next_number))

    def keep_only(self, wanted: Callable[[Op], bool]) -> None:
        """Forget what is not wanted any more; events always are."""
        self._queue = deque(op for op in self._queue if op.is_event or wanted(op))

    def withhold(self) -> None:
        """Let events wait until `let_go`."""
        events = deque(op for op in self._queue if op.is_event)
        self._queue = deque(op for op in self._queue if not op.is_event)
        self._withheld = deque((*(self._withheld or ()), *events))

    def let_go(self) -> None:
        if self._withheld is not None:
            self._queue.extend(self._withheld)
            self._withheld = None

    def refuse(self, op: Op, reason: str) -> None:
        """It cannot be said at all."""
        self.dropped += 1
        self.done(op)
        self._complain(f"cannot send {op.subject!r}: {reason}")

    def _count(self, op: Op, sign: int) -> None:
        if op.is_event:
            self.events += sign
            self._bytes += sign * op.size

    def _drop_oldest(self) -> None:
        queue = self._withheld or self._queue
        oldest = next(position for position, op in enumerate(queue) if op.is_event)
        self._count(queue[oldest], -1)
        self.done(queue[oldest])
        del queue[oldest]
        if not self.dropped:
            self._complain("the queue for the cloud is full; the oldest events are dropped")
        self.dropped += 1
