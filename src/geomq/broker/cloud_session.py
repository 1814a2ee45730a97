"""The session of a leader at the cloud: a bounded MQTT 5 client without its socket.

Messages of the strategy go in with `say`, packets of the cloud with `receive`; bytes come out of `take_bytes`. What was
said goes out in the order it was said. Events wait while the cloud is away, up to a bound beyond which the oldest are
dropped and counted; everything else is said again by the strategy when the cloud is back.

Topics and filters that begin with `$` are each broker's own affair and never go to the cloud.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from geomq.broker.cloud_codec import (
    CloudReader,
    fetch_identifier,
    live_identifier,
    publish_of_announcement,
    publish_of_event,
)
from geomq.errors import ProtocolError
from geomq.mqtt.encode import encode
from geomq.mqtt.faults import ProtocolViolation
from geomq.mqtt.packets import (
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from geomq.mqtt.properties import Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import PACKET_SIZE_MAX, V5
from geomq.routing.groups_messages import (
    CloudAnnounce,
    CloudPing,
    CloudPong,
    CloudPublish,
    CloudSubscribe,
    CloudUnsubscribe,
)
from geomq.routing.messages import Message

WINDOW_MAX = 1024
"""QoS 1 and 2 publishes on their way to the cloud, if it allows as many."""
OUTSTANDING_MAX = 32_768
FAILED = 0x80
"""Reason codes from here on are refusals."""


class Op(msgspec.Struct, eq=False):
    """Something that is to be said to the cloud, or was and is not acknowledged yet."""

    packet: Publish | Subscribe | Unsubscribe | Pingreq
    size: int = 0
    place: int = 0
    released: bool = False
    """A QoS 2 publish that the cloud has; only the end of the handshake is missing."""
    mark: int | None = None
    """The token of a ping of the strategy."""

    @property
    def is_event(self) -> bool:
        return self.size > 0


class Heard(NamedTuple):
    """What a packet means for the strategy, and what to answer once that is safe."""

    messages: list[Message]
    answer: bytes = b""


class CloudSession:
    """Everything that outlives a connection to the cloud."""

    def __init__(
        self, reader: CloudReader, *, queue_max: int, queue_bytes_max: int, complain: Callable[[str], None]
    ) -> None:
        self.up = False
        self.paused = False
        self.dropped = 0
        self.resumable = False
        self._reader = reader
        self._queue_max = queue_max
        self._queue_bytes_max = queue_bytes_max
        self._complain = complain
        self._limits = Properties()
        self._queue: deque[Op] = deque()
        self._waiting = 0
        self._waiting_bytes = 0
        self._outstanding: dict[int, Op] = {}
        self._in_flight = 0
        self._places = 0
        self._last_id = 0
        self._pings: deque[Op] = deque()
        self._marks: deque[Op] = deque()
        self._filters: dict[str, int] = {}
        self._numbers = 0
        self._received: set[int] = set()
        self._out: list[bytes] = []

    @property
    def waiting(self) -> int:
        """Events that wait to be sent."""
        return self._waiting

    # The connection.

    def connected(self, connack: Connack) -> None:
        """The cloud took us in; `session_present` tells whether it remembers what we said before."""
        self.up, self.resumable, self.paused = True, True, False
        self._limits = connack.properties
        self._out.clear()
        again = list(self._outstanding.items())
        if connack.session_present:
            for packet_id, op in again:
                if not self._write(op, packet_id, dup=True):
                    self._settle(packet_id, ())
        else:
            self._outstanding.clear()
            self._in_flight = 0
            self._filters.clear()
            self._received.clear()
            for _, op in reversed(again):
                if op.is_event:
                    op.released = False
                    self._enqueue(op, first=True)
            self._queue = deque(op for op in self._queue if op.is_event)
        self._pump()

    def disconnected(self) -> None:
        """The connection is gone. Events, and what the cloud must forget, are kept; the strategy repeats the rest."""
        self.up = False
        self._out.clear()
        self._pings.clear()
        self._marks.clear()
        for op in (*self._outstanding.values(), *self._queue):
            if isinstance(op.packet, Subscribe):
                self._filters.pop(_subject(op), None)
        self._outstanding = {packet_id: op for packet_id, op in self._outstanding.items() if _kept(op)}
        self._queue = deque(op for op in self._queue if _kept(op))

    def ping(self) -> None:
        """Ask whether the cloud is still there."""
        self._send_ping(Op(Pingreq()))

    def take_bytes(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def resume(self) -> None:
        """The socket takes bytes again."""
        self.paused = False
        self._pump()

    # What the strategy says.

    def say(self, message: Message) -> None:
        """Take a message for the cloud, to be sent now or when it is there."""
        match message:
            case CloudPublish(event=event):
                if not event.topic.startswith("$"):
                    self._say_event(message)
            case _ if not self.up:
                return
            case CloudAnnounce():
                if not self.paused:
                    self._enqueue(Op(publish_of_announcement(message)))
            case CloudSubscribe(topic_filter=topic_filter):
                self._subscribe(topic_filter)
            case CloudUnsubscribe(topic_filter=topic_filter):
                if not topic_filter.startswith("$"):
                    self._filters.pop(topic_filter, None)
                    self._enqueue(Op(Unsubscribe(0, (topic_filter,))))
            case CloudPing(token=token):
                self._enqueue(Op(Pingreq(), mark=token))
        if self.up:
            self._pump()

    def _say_event(self, message: CloudPublish) -> None:
        try:
            packet = publish_of_event(message.event)
        except ProtocolError as error:
            self._refuse(message.event.topic, str(error))
            return
        op = Op(packet, size=len(packet.payload) + len(packet.topic) + 256)
        while self._waiting and (
            self._waiting >= self._queue_max or self._waiting_bytes + op.size > self._queue_bytes_max
        ):
            self._drop_oldest()
        self._enqueue(op)

    def _drop_oldest(self) -> None:
        oldest = next(position for position, op in enumerate(self._queue) if op.is_event)
        self._forget(self._queue[oldest])
        del self._queue[oldest]
        if not self.dropped:
            self._complain("the queue for the cloud is full; the oldest events are dropped")
        self.dropped += 1

    def _subscribe(self, topic_filter: str) -> None:
        """Subscribe in two steps, so that what the cloud had retained can be told from what is published now."""
        if topic_filter.startswith("$") or topic_filter in self._filters:
            return
        self._numbers += 1
        self._filters[topic_filter] = self._numbers
        request = SubscribeRequest(topic_filter, qos=2, no_local=True, retain_as_published=True)
        if self._limits.subscription_identifier_available == 0:
            self._enqueue(Op(Subscribe(0, (request,))))
            return
        for identifier, handling in ((fetch_identifier(self._numbers), 0), (live_identifier(self._numbers), 2)):
            asked = msgspec.structs.replace(request, retain_handling=handling)
            self._enqueue(Op(Subscribe(0, (asked,), Properties(subscription_identifiers=(identifier,)))))

    def _enqueue(self, op: Op, *, first: bool = False) -> None:
        if first:
            self._queue.appendleft(op)
        else:
            self._queue.append(op)
        if op.is_event:
            self._waiting += 1
            self._waiting_bytes += op.size

    def _forget(self, op: Op) -> None:
        if op.is_event:
            self._waiting -= 1
            self._waiting_bytes -= op.size

    def _pump(self) -> None:
        """Send what the window and the socket let go now."""
        window = min(self._limits.receive_maximum or 0xFFFF, WINDOW_MAX)
        while self._queue and self.up and not self.paused:
            op = self._queue[0]
            counted = isinstance(op.packet, Publish) and self._qos(op.packet) > 0
            if (counted and self._in_flight >= window) or len(self._outstanding) >= OUTSTANDING_MAX:
                return
            self._queue.popleft()
            self._forget(op)
            if isinstance(op.packet, Pingreq):
                self._send_ping(op)
            elif isinstance(op.packet, Publish) and not counted:
                self._write(op, 0)
            else:
                packet_id = self._free_id()
                if self._write(op, packet_id):
                    self._places += 1
                    op.place = self._places
                    self._outstanding[packet_id] = op
                    self._in_flight += counted

    def _send_ping(self, op: Op) -> None:
        op.place = self._places
        self._pings.append(op)
        self._out.append(encode(op.packet, V5))

    def _write(self, op: Op, packet_id: int, *, dup: bool = False) -> bool:
        packet: Packet = op.packet
        if isinstance(packet, Publish):
            retain = packet.retain and self._limits.retain_available != 0
            qos = self._qos(packet)
            packet = msgspec.structs.replace(packet, qos=qos, retain=retain, packet_id=packet_id, dup=dup)
            if op.released:
                packet = Pubrel(packet_id)
        elif not isinstance(packet, Pingreq):
            packet = msgspec.structs.replace(packet, packet_id=packet_id)
        try:
            data = encode(packet, V5)
        except ProtocolError as error:
            self._refuse(_subject(op), str(error))
            return False
        if len(data) > (self._limits.maximum_packet_size or PACKET_SIZE_MAX):
            self._refuse(_subject(op), f"{len(data)} bytes are more than the cloud takes")
            return False
        self._out.append(data)
        return True

    def _qos(self, publish: Publish) -> int:
        maximum = self._limits.maximum_qos
        return publish.qos if maximum is None else min(publish.qos, maximum)

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._outstanding:
                return self._last_id

    def _refuse(self, subject: str, reason: str) -> None:
        self.dropped += 1
        self._complain(f"cannot send {subject[:80]!r}: {reason}")

    # What the cloud says.

    def receive(self, packet: Packet) -> Heard:
        """Take in a packet of the cloud; ProtocolError if the connection has to end."""
        match packet:
            case Publish():
                return self._published(packet)
            case Pubrel(packet_id=packet_id):
                self._received.discard(packet_id)
                return Heard([], encode(Pubcomp(packet_id), V5))
            case Puback(packet_id=packet_id, reason=reason) | Pubcomp(packet_id=packet_id, reason=reason):
                self._settle(packet_id, (reason,))
            case Pubrec(packet_id=packet_id, reason=reason):
                self._half_settle(packet_id, reason)
            case Suback(packet_id=packet_id, reasons=reasons) | Unsuback(packet_id=packet_id, reasons=reasons):
                self._settle(packet_id, reasons)
            case Pingresp():
                if self._pings:
                    op = self._pings.popleft()
                    if op.mark is not None:
                        self._marks.append(op)
            case Disconnect(reason=reason):
                raise ProtocolError(f"the cloud ended the connection: {reason.name.lower().replace('_', ' ')}")
            case _:
                raise ProtocolViolation(f"{packet.type.name} has no place here")
        return Heard(self._passed_marks())

    def _published(self, publish: Publish) -> Heard:
        if publish.properties.topic_alias is not None:
            raise ProtocolViolation("a topic alias that was not allowed", ReasonCode.TOPIC_ALIAS_INVALID)
        answer = b""
        if publish.qos == 1:
            answer = encode(Puback(publish.packet_id), V5)
        elif publish.qos == 2:
            answer = encode(Pubrec(publish.packet_id), V5)
            if publish.packet_id in self._received:
                return Heard([], answer)
            self._received.add(publish.packet_id)
        said = self._reader.read(publish)
        return Heard([] if said is None else [said], answer)

    def _settle(self, packet_id: int, reasons: tuple[ReasonCode, ...]) -> None:
        op = self._outstanding.pop(packet_id, None)
        if op is None:
            return
        if isinstance(op.packet, Publish):
            self._in_flight -= 1
        for reason in reasons:
            if reason >= FAILED:
                self._complain(f"the cloud refuses {_subject(op)[:80]!r}: {reason.name.lower().replace('_', ' ')}")
        self._pump()

    def _half_settle(self, packet_id: int, reason: ReasonCode) -> None:
        op = self._outstanding.get(packet_id)
        if op is None:
            self._out.append(encode(Pubrel(packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), V5))
        elif reason >= FAILED:
            self._settle(packet_id, (reason,))
        else:
            op.released = True
            self._out.append(encode(Pubrel(packet_id), V5))

    def _passed_marks(self) -> list[Message]:
        """The marks that the cloud answered and before which nothing is outstanding, in their order."""
        passed: list[Message] = []
        while self._marks:
            oldest = next(iter(self._outstanding.values()), None)
            if oldest is not None and oldest.place <= self._marks[0].place:
                break
            token = self._marks.popleft().mark
            assert token is not None
            passed.append(CloudPong(token))
        return passed


def _kept(op: Op) -> bool:
    return op.is_event or isinstance(op.packet, Unsubscribe)


def _subject(op: Op) -> str:
    match op.packet:
        case Publish(topic=topic):
            return topic
        case Subscribe(requests=requests):
            return requests[0].topic_filter
        case Unsubscribe(topic_filters=topic_filters):
            return topic_filters[0]
    return "ping"
