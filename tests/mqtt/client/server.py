"""A server for client sessions, made of the product's own server side, and a pipe between the two that loses things."""

from collections import deque

from geomq.mqtt.client.events import Event
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.codec.cutter import body_bounds
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
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
    Unsuback,
    Unsubscribe,
)
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import NEVER_EXPIRES, PACKET_SIZE_MAX
from geomq.mqtt.session.changes import Journal
from geomq.mqtt.session.handshake import Policy, agree, welcome
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.subscriptions import Terms


class Server:
    """One client's server. `routed` is what it accepted, `filters` what the client is subscribed to."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.journal: Journal = []
        self.session = Session("c", policy, self.journal)
        self.present = False
        self.routed: list[bytes] = []
        self.filters: list[str] = []
        self.seen: set[bytes] = set()
        self.decoder: Decoder | None = None
        self.out: list[bytes] = []

    def forget(self) -> None:
        """Lose the session."""
        self.session = Session("c", self.policy, self.journal)
        self.present = False
        self.filters.clear()
        self.seen.clear()

    def opened(self) -> None:
        self.decoder = Decoder(Side.SERVER)
        self.out = []

    def closed(self) -> None:
        self.decoder = None
        if self.session.connected:
            self.session.detach(self.session.expiry_s, 0.0)
            if not self.session.expiry_s:
                self.forget()

    def receive(self, data: bytes) -> None:
        assert self.decoder is not None
        for packet in self.decoder.feed(data):
            self._handle(packet)

    def deliver(self, payload: bytes, qos: int, topic: str = "t") -> None:
        """Send the client a message, now or when it is there."""
        data = self.session.deliver(Fanout(ApplicationMessage(topic, payload, qos), 0.0), Terms(qos, False, ()))
        if data:
            self.out.append(data)

    def _handle(self, packet: Packet) -> None:
        session, version = self.session, self.session.version
        match packet:
            case Connect():
                self._connect(packet)
            case Publish():
                assert packet.dup or packet.payload not in self.seen, "sent again without the DUP flag"
                self.seen.add(packet.payload)
                message = session.accept(packet, 0.0)
                if message is not None:
                    self.routed.append(message.payload)
                if packet.qos:
                    self.out.append(session.answer(packet.packet_id, packet.qos))
            case Pubrel():
                self.out.append(session.on_pubrel(packet))
            case Puback():
                self.out += session.on_puback(packet, 0.0)
            case Pubrec():
                self.out += session.on_pubrec(packet, 0.0)
            case Pubcomp():
                self.out += session.on_pubcomp(packet, 0.0)
            case Subscribe():
                self.filters += [asked.topic_filter for asked in packet.requests]
                reasons = tuple(ReasonCode(asked.qos) for asked in packet.requests)
                self.out.append(encode(Suback(packet.packet_id, reasons), version))
            case Unsubscribe():
                self.filters = [name for name in self.filters if name not in packet.topic_filters]
                reasons = (ReasonCode.SUCCESS,) * len(packet.topic_filters)
                self.out.append(encode(Unsuback(packet.packet_id, reasons), version))
            case Pingreq():
                self.out.append(encode(Pingresp(), version))
            case _:
                assert isinstance(packet, Disconnect)

    def _connect(self, connect: Connect) -> None:
        if connect.clean_start:
            self.forget()
        agreement = agree(connect, self.policy, spare_id="given")
        present, self.present = self.present, agreement.expiry_s > 0
        self.out.append(encode(welcome(connect, agreement, self.policy, session_present=present), connect.version))
        self.out += self.session.attach(agreement, None, 0.0)


class Pipe:
    """A network connection after the other between a client session and a server; both ends read when told to."""

    def __init__(self, client: ClientSession, server: Server) -> None:
        self.client = client
        self.server = server
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.connected = False
        self.now = 0.0
        self.events: list[Event] = []

    def connect(self) -> None:
        self.server.opened()
        self.client.open(self.now)
        self.connected = True
        self.flush()

    def cut(self) -> None:
        """The connection breaks and what was under way is gone."""
        if self.connected:
            self.connected = False
            self.to_client.clear()
            self.to_server.clear()
            self.client.close()
            self.server.closed()

    def flush(self) -> None:
        """Write what both ends have to write, each packet for itself so that any of them can be the last to arrive."""
        if self.connected:
            self.to_server.extend(packets_in(self.client.take_bytes(self.now)))
            self.to_client.extend(packet for data in self.server.out for packet in packets_in(data))
            self.server.out = []
        self.events += self.client.take_events()

    def server_reads(self) -> None:
        if self.to_server:
            self.server.receive(self.to_server.popleft())
        self.flush()

    def client_reads(self) -> None:
        if self.to_client:
            self.client.receive(self.to_client.popleft(), self.now)
        self.flush()

    def settle(self) -> None:
        """Until nobody has anything to say."""
        self.flush()
        while self.to_client or self.to_server:
            self.server_reads()
            self.client_reads()


def packets_in(data: bytes) -> list[bytes]:
    """The bytes of each packet."""
    packets, start = [], 0
    while start < len(data):
        bounds = body_bounds(data, start, PACKET_SIZE_MAX, strict=True)
        assert bounds is not None
        packets.append(data[start : bounds[1]])
        start = bounds[1]
    return packets


LASTING = NEVER_EXPIRES
