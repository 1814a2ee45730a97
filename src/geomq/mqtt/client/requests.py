"""The sending half of a client session: a bounded queue in one order, packet identifiers, flow control, resending.

Decides what is sent next; encodes nothing. QoS 1 and 2 messages that were sent survive a lost connection and are sent
again under their identifiers, in their first order, before anything new; PUBRELs follow in the order of their PUBRECs.
Unanswered SUBSCRIBE and UNSUBSCRIBE packets return to the front of the queue.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from geomq.errors import GeomqError
from geomq.mqtt.client.events import Request, State
from geomq.mqtt.client.terms import PACKET_ID_MAX
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Pingreq, Publish

FORGOTTEN: Final = Publish("", qos=2)
"""Stands for a message that may be on its way, but nobody remembers it."""
OTHERS_MAX: Final = 65_536
"""Requests other than messages that may wait beside them."""


class QueueFull(GeomqError):  # noqa: N818
    """So much waits for the server that no more is taken."""


class Requests:
    """What was asked of the server and is not finished. `window` bounds QoS 1 and 2 messages on their way.

    `identifiers` are the first packet identifier to use and how many there are.
    """

    __slots__ = (
        "_bytes",
        "_ids",
        "_last_id",
        "_messages",
        "_places",
        "_queue",
        "_quota",
        "_repeats",
        "_withheld",
        "bytes_max",
        "queue_max",
        "under_way",
    )

    def __init__(self, *, queue_max: int, bytes_max: int, identifiers: tuple[int, int] = (1, PACKET_ID_MAX)) -> None:
        self.queue_max = queue_max
        self.bytes_max = bytes_max
        self.under_way: dict[int, Request] = {}
        self._queue: deque[Request] = deque()
        self._withheld: deque[Request] | None = None
        self._repeats: deque[Request] = deque()
        self._messages = self._bytes = 0
        self._ids = identifiers
        self._last_id = 0
        self._quota = 0
        self._places = 0

    def __len__(self) -> int:
        """Everything not finished: waiting and on its way."""
        return len(self._queue) + len(self._withheld or ()) + len(self.under_way)

    @property
    def messages(self) -> int:
        """Messages that wait to be sent."""
        return self._messages

    @property
    def has_work(self) -> bool:
        """Whether `take` may have something to send."""
        return bool(self._queue or self._repeats)

    def waiting(self) -> Iterator[Request]:
        yield from self._withheld or ()
        yield from self._queue

    def has_room(self, size: int) -> bool:
        """Whether another message of this size may wait."""
        return self._messages < self.queue_max and (not self._messages or self._bytes + size <= self.bytes_max)

    def add(self, request: Request) -> None:
        """Let the request wait for its turn; QueueFull if too much waits already."""
        if isinstance(request.packet, Publish):
            if not self.has_room(request.size):
                raise QueueFull(f"{self._messages:,} messages are queued for the server; the queue is full")
            self._count(request, 1)
            (self._queue if self._withheld is None else self._withheld).append(request)
        else:
            if len(self._queue) - self._messages >= OTHERS_MAX:
                raise QueueFull(f"{OTHERS_MAX:,} requests are queued for the server; the queue is full")
            self._queue.append(request)

    def put_first(self, request: Request) -> None:
        """Let the request wait before all others, whatever waits."""
        request.state, request.packet_id, request.counted = State.QUEUED, 0, False
        if isinstance(request.packet, Publish):
            self._count(request, 1)
        self._queue.appendleft(request)

    def drop_oldest(self) -> Request | None:
        """Give up the message that has waited longest."""
        for queue in (self._withheld, self._queue):
            for position, request in enumerate(queue or ()):
                if queue is not None and isinstance(request.packet, Publish):
                    del queue[position]
                    self._count(request, -1)
                    return request
        return None

    def forget(self, unwanted: Callable[[Request], bool]) -> None:
        """Drop requests that wait and are not wanted any more, without a word."""
        for request in self._queue:
            if isinstance(request.packet, Publish) and unwanted(request):
                self._count(request, -1)
        self._queue = deque(request for request in self._queue if not unwanted(request))

    def withhold(self) -> None:
        """Let messages wait, and only them, until `let_go`."""
        messages = [request for request in self._queue if isinstance(request.packet, Publish)]
        self._queue = deque(request for request in self._queue if not isinstance(request.packet, Publish))
        self._withheld = deque((*(self._withheld or ()), *messages))

    def let_go(self) -> None:
        if self._withheld is not None:
            self._queue.extend(self._withheld)
            self._withheld = None

    def _count(self, request: Request, sign: int) -> None:
        self._messages += sign
        self._bytes += sign * request.size

    # The connection.

    def connect(self, window: int) -> None:
        """The server still has the session: what it has not acknowledged is due again."""
        self._quota = window
        self._repeats = deque(self.under_way.values())

    def start_over(self, window: int) -> None:
        """The server has no session: everything unfinished is new to it."""
        self._quota = window
        self._repeats.clear()
        for request in sorted(self.under_way.values(), key=lambda request: request.place, reverse=True):
            if request.packet is not FORGOTTEN:
                self.put_first(request)
        self.under_way = {}

    def disconnect(self) -> None:
        self._quota = 0
        self._repeats.clear()
        for packet_id, request in reversed(tuple(self.under_way.items())):
            request.counted = False
            if not isinstance(request.packet, Publish):
                del self.under_way[packet_id]
                self.put_first(request)

    def restore(self, request: Request) -> None:
        """Put back what was saved, those on their way in the order they were sent."""
        if request.packet_id:
            self.under_way[request.packet_id] = request
        else:
            if isinstance(request.packet, Publish):
                self._count(request, 1)
            self._queue.append(request)

    def end_forgotten(self) -> None:
        """The server may have exchanges of QoS 2 open from before all was forgotten here, and would take a new message
        under such an identifier for a repeat: end them all first."""
        first, count = self._ids
        for packet_id in range(first, first + count):
            self.under_way[packet_id] = Request(FORGOTTEN, None, 0, None, State.RELEASED, packet_id, 2)

    # Sending.

    def take(self) -> Request | None:
        """The next request to send, repeats first; None if there is none that may be sent now."""
        if self._repeats:
            return self._take_repeat()
        queue = self._queue
        if not queue:
            return None
        request = queue[0]
        packet = request.packet
        if isinstance(packet, Publish):
            if packet.qos and not self._quota:
                return None
            if packet.qos and len(self.under_way) >= self._ids[1]:
                return None
            self._count(request, -1)
        elif len(self.under_way) >= self._ids[1] and not isinstance(packet, Pingreq):
            return None
        queue.popleft()
        return request

    def _take_repeat(self) -> Request | None:
        repeats = self._repeats
        while repeats:
            request = repeats[0]
            if request.state is State.SENT and not self._quota:
                return None
            repeats.popleft()
            if request.state is State.SENT:
                self._quota -= 1
                request.counted = True
            if request.state is not State.DONE:
                return request
        return self.take()

    def launch(self, request: Request, qos: int) -> int:
        """The request is being sent, as a message with this QoS: the packet identifier to use, 0 for none."""
        self._places += 1
        request.place = self._places
        packet = request.packet
        if isinstance(packet, Pingreq) or (isinstance(packet, Publish) and not qos):
            request.state = State.DONE
            return 0
        under_way, (first, count) = self.under_way, self._ids
        offset = self._last_id
        while first + offset in under_way:
            offset = (offset + 1) % count
        self._last_id = (offset + 1) % count
        packet_id = request.packet_id = first + offset
        request.state = State.SENT
        if qos:
            request.qos = qos
            request.counted = True
            self._quota -= 1
        under_way[packet_id] = request
        return packet_id

    def release(self, packet_id: int) -> Request | None:
        """PUBREC: the request whose PUBREL is due; None if there is none of that identifier."""
        request = self.under_way.get(packet_id)
        if request is None:
            return None
        if request.qos != 2 or request.state not in (State.SENT, State.RELEASED):
            raise ProtocolViolation(f"PUBREC for packet {packet_id}, which is not a QoS 2 message in flight")
        # PUBRELs are repeated in the order of the PUBRECs, so the request moves to the end.
        del self.under_way[packet_id]
        self.under_way[packet_id] = request
        return request

    def finish(self, request: Request) -> None:
        """The server answered the request for good."""
        del self.under_way[request.packet_id]
        request.state = State.DONE
        if request.counted:
            request.counted = False
            self._quota += 1
