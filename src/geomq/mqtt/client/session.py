"""One MQTT client session, for both versions: what every client in GeoMQ is a face of.

Bytes in with `receive`, bytes out of `take_bytes`, what happened out of `take_events`; time (`now`, seconds of any
steady clock) is an argument. A face owns the network: it calls `open` when a connection is there and `close` when it
is gone, passes on what arrives, writes what is to be written, and calls `on_deadline` when `next_deadline` has come.
The session outlives its connections: requests wait, are sent again and are answered on whichever connection there is.

A ProtocolError from `receive` or `on_deadline` ends the connection: write what `farewell` gives, then close.
"""

from math import ceil
from typing import Final

import msgspec

from geomq.errors import ProtocolError
from geomq.mqtt.client.events import (
    QUEUE_FULL,
    Accepted,
    Acknowledged,
    Answered,
    Connected,
    ConnectRefused,
    Dropped,
    Ended,
    Event,
    Repeated,
    Request,
    State,
    request_of,
)
from geomq.mqtt.client.pings import Pings
from geomq.mqtt.client.receipts import Arrival, Receipts
from geomq.mqtt.client.requests import Requests
from geomq.mqtt.client.subscriptions import Subscriptions, reasons_for
from geomq.mqtt.client.terms import PACKET_ID_MAX, ClientPolicy, ServerTerms, expiry_of
from geomq.mqtt.codec.aliases import InboundAliases
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode, publish_parts
from geomq.mqtt.codec.faults import MqttError, ProtocolViolation
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
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
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.codec.types import V5

_UNFIT: Final = (ProtocolError, ValueError, OverflowError)
"""What encoding raises for values that fit no packet."""
_CONNACK_V311: Final = b"\x20\x02"
_PINGREQ: Final = b"\xc0\0"


class ClientSession:
    """`connect` is the CONNECT to send, which may be replaced between connections.

    `client_id` is the server's choice once it made one; `known` says whether the server is thought to have a session.
    """

    def __init__(self, connect: Connect, policy: ClientPolicy | None = None, names: TopicNames | None = None) -> None:
        self.connect = connect
        self.policy = policy = ClientPolicy() if policy is None else policy
        self.client_id = connect.client_id
        self.known = False
        self.up = False
        self.requests = Requests(
            queue_max=policy.queue_max, bytes_max=policy.queue_bytes_max, identifiers=policy.identifiers
        )
        self.receipts = Receipts((policy.receive_max if connect.version == V5 else None) or PACKET_ID_MAX)
        self.subscriptions = Subscriptions()
        self.terms = ServerTerms(connect, Connack(), policy)
        self.dropped = 0
        self._version = connect.version
        self._names = TopicNames() if names is None else names
        self._leaving = False
        self._clean = False
        self._decoder: Decoder | None = None
        self._aliases = InboundAliases(policy.alias_max)
        self._pings = Pings(policy.answer_s)
        self._out: list[bytes] = []
        self._events: list[Event] = []

    # The connection.

    @property
    def resumable(self) -> bool:
        """Whether the session outlives its connections."""
        if self._version != V5:
            return not self.connect.clean_start
        return expiry_of(self.connect, self.terms.limits) > 0

    def open(self, now: float) -> None:
        """A network connection is there: CONNECT is due."""
        policy = self.policy
        self._clean = not self.resumable if self.known else self.connect.clean_start
        self._decoder = Decoder(Side.CLIENT, version=self._version, size_max=policy.packet_size_max, names=self._names)
        self._aliases = InboundAliases(policy.alias_max)
        self._pings.start(now)
        self._leaving = False
        packet = policy.asked(self.connect, client_id=self.client_id, clean_start=self._clean)
        self._out = [encode(packet, self._version)]

    def close(self) -> None:
        """The network connection is gone."""
        self.up = False
        self._decoder = None
        self._out = []
        self.requests.disconnect()
        self.receipts.disconnect()

    def disconnect(self, reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION, *, expiry_s: int | None = None) -> None:
        """End the connection with DISCONNECT; nothing that waits is sent any more."""
        if self.up and not self._leaving:
            self._leaving = True
            properties = NO_PROPERTIES if expiry_s is None else Properties(session_expiry_interval=expiry_s)
            self._out.append(encode(Disconnect(reason, properties), self._version))

    def farewell(self, error: ProtocolError) -> bytes:
        """The last bytes to a server that broke the protocol."""
        reason = error.reason if isinstance(error, MqttError) else ReasonCode.PROTOCOL_ERROR
        return encode(Disconnect(reason), self._version) if self._version == V5 and self.up else b""

    def take_bytes(self, now: float) -> bytes:
        """What to write now. Call it when the network takes bytes and something may have changed."""
        if self.up and not self._leaving and self.requests.has_work:
            self._pump(now)
        out = self._out
        if not out:
            return b""
        self._out = []
        self._pings.sent_at = now
        return out[0] if len(out) == 1 else b"".join(out)

    @property
    def unsent(self) -> int:
        """Packets that are due and wait for the network, requests excepted."""
        return len(self._out)

    def take_events(self) -> list[Event]:
        """What happened since the last call, in order."""
        events = self._events
        if events:
            self._events = []
        return events

    # Time.

    def next_deadline(self) -> float | None:
        """When `on_deadline` is due; None while there is no connection, or nothing to wait for."""
        if self._decoder is None:
            return None
        return self._pings.deadline() if self.up else self._pings.connack_at

    def on_deadline(self, now: float) -> None:
        """Ask whether the server is there; ProtocolError if it has not answered in time."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        if not self.up:
            raise ProtocolError(f"no CONNACK within {self.policy.answer_s:g} s")
        if self._pings.silent(now):
            raise ProtocolViolation("the broker does not answer", ReasonCode.KEEP_ALIVE_TIMEOUT)
        self._pings.ask(now)
        self._out.append(_PINGREQ)

    def heard(self, now: float) -> None:
        """The server is there, whatever `receive` was given."""
        self._pings.heard_at = now

    # What the program asks for.

    def publish(self, packet: Publish, now: float, *, tag: object = None) -> Request:
        """Send the message when its turn comes; QueueFull if the policy does not let it wait."""
        interval = packet.properties.message_expiry_interval
        request = request_of(packet, None if interval is None else now + interval, tag)
        requests = self.requests
        if self.policy.drop_oldest:
            while not requests.has_room(request.size):
                oldest = requests.drop_oldest()
                assert oldest is not None
                self._drop(oldest, QUEUE_FULL)
        requests.add(request)
        return request

    def subscribe(
        self, *asked: SubscribeRequest, properties: Properties = NO_PROPERTIES, tag: object = None
    ) -> Request:
        request = Request(Subscribe(0, asked, properties), tag)
        self.requests.add(request)
        return request

    def unsubscribe(self, *topic_filters: str, properties: Properties = NO_PROPERTIES, tag: object = None) -> Request:
        request = Request(Unsubscribe(0, topic_filters, properties), tag)
        self.requests.add(request)
        return request

    def ping(self, tag: object = None) -> Request:
        """Have the server answer once it has finished everything asked of it before; lost with the connection."""
        request = Request(Pingreq(), tag)
        self.requests.add(request)
        return request

    def acknowledge(self, publish: Publish | Repeated) -> bytes:
        """The program is done with a message it received: the answer, to be written on this connection.

        Empty if the message came on an earlier connection: then its repeat is answered.
        """
        if isinstance(publish, Repeated):
            publish = publish.publish
            due = self.receipts.answer_again(publish.packet_id)
        else:
            due = publish.qos > 0 and self.receipts.acknowledge(publish)
        return _answer(publish) if due else b""

    # Sending.

    def _pump(self, now: float) -> None:
        take, out = self.requests.take, self._out
        while (request := take()) is not None:
            packet = request.packet
            if request.state is State.RELEASED:
                out.append(_pubrel(request.packet_id))
            elif request.state is State.SENT:
                assert isinstance(packet, Publish)
                self._repeat(request, packet)
            elif isinstance(packet, Publish):
                self._send(request, packet, now)
            elif isinstance(packet, Pingreq):
                self.requests.launch(request, 0)
                self._pings.ask(now, request)
                out.append(_PINGREQ)
            else:
                self._send_other(request, packet)

    def _send(self, request: Request, publish: Publish, now: float) -> None:
        if request.expires_at is not None:
            if request.expires_at < now:
                self._drop(request, "it expired in the queue")
                return
            left_s = ceil(request.expires_at - now)
            properties = msgspec.structs.replace(publish.properties, message_expiry_interval=left_s)
            publish = msgspec.structs.replace(publish, properties=properties)
        fit = self.terms.fit(publish)
        if isinstance(fit, str):
            self._drop(request, fit)
            return
        qos, retain = fit
        if qos != publish.qos or retain != publish.retain:
            publish = msgspec.structs.replace(publish, qos=qos, retain=retain)
        try:
            head, tail = publish_parts(publish, self._version)
        except _UNFIT as error:
            self._drop(request, str(error))
            return
        size = len(head) + len(tail) + (2 if qos else 0)
        if size > self.terms.packet_max:
            self._drop(request, self.terms.too_large(size))
            return
        packet_id = self.requests.launch(request, qos)
        if qos:
            self._out.append(b"%b%c%c%b" % (head, packet_id >> 8, packet_id & 0xFF, tail))
        else:
            self._out.append(head + tail)
            self._events.append(Acknowledged(request))

    def _repeat(self, request: Request, publish: Publish) -> None:
        self._write(request, msgspec.structs.replace(publish, qos=request.qos, packet_id=request.packet_id, dup=True))

    def _send_other(self, request: Request, packet: Subscribe | Unsubscribe) -> None:
        packet_id = self.requests.launch(request, 0)
        self._write(request, msgspec.structs.replace(packet, packet_id=packet_id))

    def _write(self, request: Request, packet: Packet) -> None:
        """Encode for this connection; what cannot be sent on it is dropped."""
        try:
            data = encode(packet, self._version)
            why = self.terms.too_large(len(data)) if len(data) > self.terms.packet_max else None
        except _UNFIT as error:
            why = str(error)
        if why is None:
            self._out.append(data)
        else:
            self._finish(request)
            self._drop(request, why)

    def _drop(self, request: Request, why: str) -> None:
        request.state = State.DONE
        self.dropped += 1
        self._events.append(Dropped(request, why))

    # Receiving.

    def receive(self, data: bytes, now: float) -> None:
        """Take in bytes of the server; ProtocolError if the connection has to end."""
        assert self._decoder is not None, "the session is not open yet"
        self._pings.heard_at = now
        if not self.up and self._version == V5 and data[:2] == _CONNACK_V311:
            self._events.append(ConnectRefused(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION))
            return
        for packet in self._decoder.feed(data):
            if not self.up:
                self._on_first(packet)
            elif isinstance(packet, Publish):
                self._on_publish(packet)
            else:
                self._on_other(packet)

    def _on_first(self, packet: Packet) -> None:
        if not isinstance(packet, Connack):
            raise ProtocolViolation(f"{packet.type.name} before CONNACK")
        if packet.reason != ReasonCode.SUCCESS:
            self._events.append(ConnectRefused(packet.reason, packet.properties))
            return
        if packet.session_present and self._clean:
            raise ProtocolViolation("the server resumed a session although a new one was requested")
        self.client_id = packet.properties.assigned_client_identifier or self.client_id
        lost = self.known and not self._clean and not packet.session_present
        self.terms = ServerTerms(self.connect, packet, self.policy)
        self._pings.ping_s = self.terms.ping_s
        if packet.session_present:
            self.requests.connect(self.terms.window)
        else:
            self.receipts.clear()
            self.requests.start_over(self.terms.window)
            for subscribe in reversed(self.subscriptions.packets()):
                self.requests.put_first(Request(subscribe))
        self.known = self.up = True
        self._events.append(Connected(packet, lost))

    def _on_publish(self, publish: Publish) -> None:
        if publish.properties.topic_alias is not None:
            publish = msgspec.structs.replace(publish, topic=self._aliases.resolve(publish))
        if not publish.qos:
            self._events.append(publish)
            return
        match self.receipts.arrive(publish):
            case Arrival.NEW:
                self._events.append(publish)
                if not self.policy.manual:
                    self._out.append(self.acknowledge(publish))
            case Arrival.ANSWERED if self.policy.manual:
                self._events.append(Repeated(publish))
            case Arrival.ANSWERED:
                self._out.append(self.acknowledge(Repeated(publish)))

    def _on_other(self, packet: Packet) -> None:
        match packet:
            case Puback():
                self._on_puback(packet)
            case Pubrec():
                self._on_pubrec(packet)
            case Pubcomp():
                self._on_pubcomp(packet)
            case Pubrel(packet_id=packet_id):
                known = self.receipts.release(packet_id)
                reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                self._out.append(encode(Pubcomp(packet_id, reason), self._version))
            case Suback() | Unsuback():
                self._on_subscribed(packet)
            case Pingresp():
                self._on_pingresp()
            case Disconnect():
                self._events.append(Ended(packet.reason, packet.properties))
            case _:
                raise ProtocolViolation(f"{packet.type.name} is not expected now")

    def _on_puback(self, packet: Puback) -> None:
        request = self.requests.under_way.get(packet.packet_id)
        if request is None:
            return
        if request.qos != 1:
            raise ProtocolViolation("PUBACK for a packet that is not a QoS 1 message in flight")
        if packet.reason:
            self._finish_publish(request, packet)
        else:
            self._finish(request)
            self._events.append(Acknowledged(request))

    def _on_pubrec(self, packet: Pubrec) -> None:
        request = self.requests.release(packet.packet_id)
        if request is None:
            reply = Pubrel(packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            self._out.append(encode(reply, self._version))
        elif packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._finish_publish(request, packet)
        else:
            if request.state is State.SENT:
                request.state = State.RELEASED
                self._events.append(Accepted(request))
            self._out.append(_pubrel(packet.packet_id))

    def _on_pubcomp(self, packet: Pubcomp) -> None:
        request = self.requests.under_way.get(packet.packet_id)
        if request is None:
            return
        if request.state is not State.RELEASED:
            raise ProtocolViolation("PUBCOMP without PUBREL")
        self._finish(request)
        # That the server does not know the identifier any more means that it has the message.
        self._events.append(Acknowledged(request, properties=packet.properties))

    def _finish_publish(self, request: Request, packet: Puback | Pubrec) -> None:
        if packet.reason == ReasonCode.QUOTA_EXCEEDED and self.policy.retries_quota:
            raise ProtocolError("the server's receive window is full")
        self._finish(request)
        self._events.append(Acknowledged(request, (packet.reason,), packet.properties))

    def _on_subscribed(self, packet: Suback | Unsuback) -> None:
        request = self.requests.under_way.get(packet.packet_id)
        if request is None:
            return
        reasons = reasons_for(request, packet)
        self._finish(request)
        if self.policy.resubscribes and isinstance(request.packet, Subscribe | Unsubscribe):
            self.subscriptions.answered(request.packet, reasons)
        self._events.append(Acknowledged(request, reasons, packet.properties))

    def _on_pingresp(self) -> None:
        self._events += [Answered(ping) for ping in self._pings.answer(self.requests.under_way.values())]

    def _finish(self, request: Request) -> None:
        self.requests.finish(request)
        if self._pings.marked:
            self._events += [Answered(ping) for ping in self._pings.finish(request)]


def _answer(publish: Publish) -> bytes:
    """PUBACK or PUBREC."""
    return b"%c\x02%c%c" % (0x40 if publish.qos == 1 else 0x50, publish.packet_id >> 8, publish.packet_id & 0xFF)


def _pubrel(packet_id: int) -> bytes:
    return b"\x62\x02%c%c" % (packet_id >> 8, packet_id & 0xFF)
