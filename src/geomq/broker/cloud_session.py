"""The session of a broker at the cloud: an MQTT 5 client without its socket.

Messages of the strategy go in with `say`, packets of the cloud with `receive`; bytes come out of `take_bytes`. What was
said goes out in the order it was said. Events wait while the cloud is away; everything else is said again by the
strategy when it is back. A session the cloud still has is resumed, also after a restart if there is a store.

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
from geomq.broker.cloud_kept import UNCERTAIN, NothingKept
from geomq.broker.cloud_outbox import CloudOutbox, Op
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
from geomq.routing.model import Event

WINDOW_MAX = 1024
"""QoS 1 and 2 publishes on their way to the cloud, if it allows as many."""
OUTSTANDING_MAX = 16_384
IDS = 0x7FFF
"""Packet identifiers of one life. Every second life uses the upper half, so that none is taken for one of the life
before whose handshake the cloud still has open."""
FAILED = 0x80
"""Reason codes from here on are refusals."""


class Heard(NamedTuple):
    """What a packet means for the strategy, and what to answer once that is safe."""

    messages: list[Message]
    answer: bytes = b""


class CloudSession:
    """Everything that outlives a connection to the cloud."""

    def __init__(
        self,
        reader: CloudReader,
        *,
        events_max: int,
        bytes_max: int,
        complain: Callable[[str], None],
        kept: NothingKept | None = None,
        life: int = 0,
    ) -> None:
        self.up = False
        self.paused = False
        self.kept = NothingKept() if kept is None else kept
        self.resumable = self.kept.durable
        self.outbox = CloudOutbox(self.kept, events_max=events_max, bytes_max=bytes_max, complain=complain)
        for event in self.kept.events():
            self.outbox.add_event(publish_of_event(event, reader.key), event, kept=True)
        self._reader = reader
        self._complain = complain
        self._limits = Properties()
        self._outstanding: dict[int, Op] = {}
        self._in_flight = 0
        self._places = 0
        self._first_id = IDS * (life % 2) + 1
        self._last_id = 0
        self._pings: deque[Op] = deque()
        self._marks: deque[Op] = deque()
        self._filters = self.kept.filters()
        self._unclaimed: dict[str, None] = {}
        self._numbers = max(self._filters.values(), default=0)
        self._resumed = False
        """Then half the window is left alone: a cloud that lost its last moments counts as open what is closed."""
        self._been_there = bool(self._filters) or self.outbox.events > 0
        self._received: set[int] = set()
        self._out: list[bytes] = []

    # The connection.

    def connected(self, connack: Connack) -> bool:
        """The cloud took us in; False if it has forgotten a session we had, and so perhaps everybody's."""
        self.up, self.resumable, self.paused = True, True, False
        self._limits = connack.properties
        self._out.clear()
        remembered = connack.session_present or not self._been_there
        self._been_there = True
        self._resumed = connack.session_present
        if connack.session_present:
            self._take_up()
        else:
            self._begin_anew()
            if not remembered:
                self.outbox.withhold()
        self._pump()
        return remembered

    def _take_up(self) -> None:
        self.outbox.let_go()
        for packet_id, op in tuple(self._outstanding.items()):
            if not self._write(op, packet_id, dup=True):
                self._settle(packet_id, ())
        self._unclaimed = dict.fromkeys(self._filters)
        for topic_filter in [name for name, number in self._filters.items() if number == UNCERTAIN]:
            self._unsubscribe(topic_filter)

    def _begin_anew(self) -> None:
        for op in reversed(self._outstanding.values()):
            if op.is_event:
                op.released = False
                self.outbox.put_back(op)
        self._outstanding.clear()
        self._in_flight = 0
        self._received.clear()
        self._unclaimed.clear()
        for topic_filter in self._filters:
            self.kept.drop_filter(topic_filter)
        self._filters.clear()
        self.outbox.keep_only(lambda _: False)

    def disconnected(self) -> None:
        """The connection is gone. Events, and what the cloud must forget, are kept; the strategy repeats the rest."""
        self.up = False
        self._out.clear()
        self._pings.clear()
        self._marks.clear()
        for op in (*self._outstanding.values(), *self.outbox.ops()):
            if isinstance(op.packet, Subscribe) and op.subject in self._filters:
                self._filters[op.subject] = UNCERTAIN
        self._outstanding = {packet_id: op for packet_id, op in self._outstanding.items() if _lasting(op)}
        self.outbox.keep_only(_lasting)

    def drop_unclaimed(self) -> None:
        """The strategy has said what it wants: unsubscribe what else the cloud holds from before."""
        for topic_filter in tuple(self._unclaimed):
            self._unsubscribe(topic_filter)
        self._pump()

    def let_events_go(self) -> None:
        """The others had time to subscribe again at a cloud that forgot everybody."""
        self.outbox.let_go()
        self._pump()

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
                    self._say_event(event)
            case _ if not self.up:
                return
            case CloudAnnounce():
                if not self.paused:
                    self.outbox.add(Op(publish_of_announcement(message)))
            case CloudSubscribe(topic_filter=topic_filter):
                self._subscribe(topic_filter)
            case CloudUnsubscribe(topic_filter=topic_filter):
                self._unsubscribe(topic_filter)
            case CloudPing(token=token):
                self.outbox.add(Op(Pingreq(), mark=token))
        self._pump()

    def _say_event(self, event: Event) -> None:
        try:
            self.outbox.add_event(publish_of_event(event, self._reader.key), event)
        except ProtocolError as error:
            self.outbox.refuse(Op(Publish(event.topic)), str(error))

    def _subscribe(self, topic_filter: str) -> None:
        """Subscribe in two steps, so that what the cloud had retained can be told from what is published now."""
        self._unclaimed.pop(topic_filter, None)
        if topic_filter.startswith("$") or self._filters.get(topic_filter):
            return
        self._numbers += 1
        self._filters[topic_filter] = self._numbers
        self.kept.keep_filter(topic_filter, UNCERTAIN)
        request = SubscribeRequest(topic_filter, qos=2, no_local=True, retain_as_published=True)
        if self._limits.subscription_identifier_available == 0:
            self.outbox.add(Op(Subscribe(0, (request,))))
            return
        for identifier, handling in ((fetch_identifier(self._numbers), 0), (live_identifier(self._numbers), 2)):
            asked = msgspec.structs.replace(request, retain_handling=handling)
            self.outbox.add(Op(Subscribe(0, (asked,), Properties(subscription_identifiers=(identifier,)))))

    def _unsubscribe(self, topic_filter: str) -> None:
        self._unclaimed.pop(topic_filter, None)
        if not topic_filter.startswith("$"):
            if self._filters.pop(topic_filter, None) is not None:
                self.kept.keep_filter(topic_filter, UNCERTAIN)
            self.outbox.add(Op(Unsubscribe(0, (topic_filter,))))

    def _pump(self) -> None:
        """Send what the window and the socket let go now."""
        window = min(self._limits.receive_maximum or 0xFFFF, WINDOW_MAX)
        if self._resumed:
            window = (window + 1) // 2
        while self.outbox and self.up and not self.paused:
            first = self.outbox.first.packet
            counted = isinstance(first, Publish) and self._qos(first) > 0
            if (counted and self._in_flight >= window) or len(self._outstanding) >= OUTSTANDING_MAX:
                return
            op = self.outbox.take()
            if isinstance(op.packet, Pingreq):
                self._send_ping(op)
            elif isinstance(op.packet, Publish) and not counted:
                if self._write(op, 0):
                    self.outbox.done(op)
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
        """Encode for the connection there is; what cannot be sent on it is dropped."""
        packet: Packet = op.packet
        if op.released:
            packet = Pubrel(packet_id)
        elif isinstance(packet, Publish):
            retain = packet.retain and self._limits.retain_available != 0
            qos = self._qos(packet)
            packet = msgspec.structs.replace(packet, qos=qos, retain=retain, packet_id=packet_id, dup=dup)
        elif not isinstance(packet, Pingreq):
            packet = msgspec.structs.replace(packet, packet_id=packet_id)
        try:
            data = encode(packet, V5)
        except ProtocolError as error:
            self.outbox.refuse(op, str(error))
            return False
        if len(data) > (self._limits.maximum_packet_size or PACKET_SIZE_MAX):
            self.outbox.refuse(op, f"{len(data)} bytes are more than the cloud takes")
            return False
        self._out.append(data)
        return True

    def _qos(self, publish: Publish) -> int:
        maximum = self._limits.maximum_qos
        return publish.qos if maximum is None else min(publish.qos, maximum)

    def _free_id(self) -> int:
        while True:
            self._last_id = (self._last_id + 1) % IDS
            packet_id = self._first_id + self._last_id
            if packet_id not in self._outstanding:
                return packet_id

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
                raise ProtocolError(f"the cloud ended the connection: {_words(reason)}")
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
            if publish.packet_id in self._received and publish.dup:
                return Heard([], answer)  # one that is no repetition comes from a cloud that lost its last moments
            self._received.add(publish.packet_id)
        said = self._reader.read(publish)
        return Heard([] if said is None else [said], answer)

    def _settle(self, packet_id: int, reasons: tuple[ReasonCode, ...]) -> None:
        op = self._outstanding.get(packet_id)
        if op is None:
            return
        if op.is_event and ReasonCode.QUOTA_EXCEEDED in reasons:
            raise ProtocolError("the cloud takes no more for now")
        del self._outstanding[packet_id]
        refused = [reason for reason in reasons if reason >= FAILED]
        for reason in refused:
            self._complain(f"the cloud refuses {op.subject!r}: {_words(reason)}")
        match op.packet:
            case Publish():
                self._in_flight -= 1
                self.outbox.done(op)
            case Subscribe():
                number = self._filters.get(op.subject)
                fetching = op.packet.properties.subscription_identifiers == (fetch_identifier(number or 0),)
                if number and not fetching and not refused:
                    self.kept.keep_filter(op.subject, number)
            case Unsubscribe():
                if op.subject not in self._filters:
                    self.kept.drop_filter(op.subject)
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


def _lasting(op: Op) -> bool:
    return op.is_event or isinstance(op.packet, Unsubscribe)


def _words(reason: ReasonCode) -> str:
    return reason.name.lower().replace("_", " ")
