"""One network connection: bytes in, packets to those who handle them, bytes out once per tick.

Parsing happens where the data arrives. PUBLISH takes the shortest path, the rest the codec's tables.
The connection knows MQTT's rules about packet order and keep-alive; what packets mean is decided elsewhere.
"""

import logging
from typing import Any

from geomq.broker.config.settings import Listener
from geomq.broker.connections.acknowledgements import acknowledge
from geomq.broker.connections.farewell import farewell
from geomq.broker.connections.greeting import speaks_v5
from geomq.broker.connections.order import State, check_order
from geomq.broker.connections.ports import Exchange, Handlers, Steps, plain_together
from geomq.broker.connections.stuck import Standing
from geomq.broker.connections.transport import nowhere
from geomq.broker.connections.writing import Writing
from geomq.broker.core import Core
from geomq.broker.security.identity import Identity
from geomq.broker.state.budget import BUFFER_BYTES, Shed
from geomq.broker.state.client import Client
from geomq.mqtt.codec.cutter import Reassembly, body_bounds, check_first_byte
from geomq.mqtt.codec.decode import BODIES, decode_publish
from geomq.mqtt.codec.decode_connect import UnsupportedVersion, decode_connect
from geomq.mqtt.codec.faults import MqttError, ProtocolViolation
from geomq.mqtt.codec.packets import Auth, Connack, Connect, Disconnect, Packet, Subscribe, Unsubscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V5, PacketType
from geomq.mqtt.session.handshake import Agreement, expiry_after

log = logging.getLogger("geomq.broker")

_OPEN = State.OPEN
_PINGRESP = b"\xd0\x00"
_QOS = 0x06
SLOW_S = 1.0
"""How long an event of QoS 1 or 2 waits, and its connection, when there is no memory to keep any."""
LARGE_BYTES = 4_096  # While others wait for a turn, what brings more than this waits behind them.


class Connection(Writing):
    """The protocol side of a transport; also driven by the WebSocket layer."""

    __slots__ = (
        "_admitted_at",
        "_counts",
        "_extra_s",
        "_greedy",
        "_handlers",
        "_read_at",
        "_reassembly",
        "_rest",
        "_slowed",
        "_state",
        "_steps",
        "_stopped",
        "_together",
        "client",
        "exchange",
        "heard",
        "identity",
        "keep_alive_s",
        "last_read",
        "last_route",
        "listener",
        "opened_at",
        "pending_connect",
        "plain_size_max",
        "size_max",
    )

    def __init__(self, core: Core, handlers: "Handlers[Connection]", listener: Listener) -> None:
        super().__init__(core)
        self._counts = core.counts
        self._handlers = handlers
        self._together = handlers.together
        self._state = State.OPENING
        self._reassembly: Reassembly | None = None
        self._rest: bytes = b""
        self._steps: Steps | None = None
        self._greedy = self._stopped = self._slowed = False
        self.size_max = self.plain_size_max = core.config.limits.pre_auth_bytes_max
        self.listener = listener
        self.client: Client | None = None
        self.identity: Identity | None = None
        self.exchange: Exchange | None = None
        self.pending_connect: Connect | None = None
        self.keep_alive_s = 0
        self.opened_at = self.last_read = self._admitted_at = core.loop.time()
        self._extra_s = 0.0
        self._read_at = -1.0
        self.heard = False
        self.last_route: Any = None

    @property
    def closed(self) -> bool:
        return self._state is State.CLOSED

    def tls(self) -> Any:
        """The SSLObject of an encrypted connection, which has the client's verified certificate, or None."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    # What the transport calls.

    def arrived(self, transport: Any) -> bool:
        """Somebody is there, though the handshake may not be over; whether there is room."""
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        if self._handlers.opened(self):
            self._transport = transport
        else:
            self._state = State.CLOSED
        return not self.closed

    def connection_made(self, transport: Any) -> None:
        if self.closed or (self._transport is None and not self.arrived(transport)):
            transport.abort()
            return
        self._transport, self.write = transport, transport.write
        self.bound_buffer()

    def connection_lost(self, _error: Exception | None) -> None:
        """Who was let in may leave much to be forgotten, and many may leave at the same time: they wait for turns. Who
        was not is gone at once, so that nobody lets it in."""
        self._transport, self.write, self.paused = None, nowhere, False
        if self.client is None:
            self.end()
        else:
            self._stopped, self._rest = True, b""
            self._core.turns.wait(self.end)

    def end(self) -> None:
        """What carries it cannot go on."""
        self._shut(None)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """The client does not read: it shall not make us answer more either."""
        self.paused = True
        if self.client is not None:
            self.client.session.stall()
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.paused = False
        if self.client is not None:
            for data in self.client.session.go_on(self._core.now_s()):
                self._core.outbox.hold(self, data)
        self.read_on()

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self._counts.bytes_received += len(data)
        if self._reassembly is not None:
            joined = self._reassembly.join(data)
            if joined is None:
                if self._core.budget.sheds >= Shed.SLOW_READERS:
                    self._hold(self._reassembly)
                return
            data, self._reassembly = joined, None
        if self._stopped:
            self._rest += data
            if len(self._rest) > self.size_max and self._transport is not None:
                self._transport.pause_reading()
            return
        is_large = len(data) > LARGE_BYTES
        if is_large or self._greedy:
            self._greedy = len(self._core.turns) > 0 or (is_large and self._is_read_again())
            if self._greedy:
                self._rest = data
                self._wait_for_turn()
                return
        first, taken = data[0], 0
        if self._state is _OPEN and (take := self._together.get(first)) is not None:
            taken = take(self, data, 0)
        if taken < len(data):
            self._core.turns.begin()
            self._parse(data, taken, taken if data[taken] == first else -1)

    def _hold(self, unfinished: Reassembly) -> None:
        """Memory runs short: a large packet is not read on until there is more of it."""
        if unfinished.size > BUFFER_BYTES and self._transport is not None:
            self._transport.pause_reading()
            self._handlers.hold(self)

    def read_on(self) -> None:
        """There is memory again."""
        if self._transport is not None and not self._stopped and not self.paused and not self.closed:
            self._transport.resume_reading()

    def _is_read_again(self) -> bool:
        """Whether much came before in this round of the loop, which may read a socket many times before others."""
        before, self._read_at = self._read_at, self._core.loop.time()
        return before == self._read_at

    def _parse(self, data: bytes, pos: int, tried: int = -1) -> None:
        outbox = self._core.outbox
        outbox.arrive()
        try:
            if self._steps is not None and not self._finish(self._steps):
                self._rest = data
            else:
                self._take_packets(data, pos, tried)
        except MqttError as error:
            self._counts.protocol_errors += 1
            log.info("client %s at %s: %s", self.client.id if self.client else "?", self.address, error)
            if self._state is State.OPENING and speaks_v5(data):
                self.version, self._state = V5, State.CHECKING  # it can be told what is wrong with its CONNECT
            self.dismiss(error.reason, str(error))
        except Exception:
            log.exception("client %s at %s: internal error", self.client.id if self.client else "?", self.address)
            self.dismiss(ReasonCode.UNSPECIFIED_ERROR)
        if outbox.journal:
            outbox.schedule()
        outbox.arrived()

    def _take_packets(self, data: bytes, pos: int, tried: int) -> None:
        """Take what is there from `pos` on, as long as it is this connection's turn; what is at `tried`, if anything,
        has to take the normal path."""
        start, end = pos, len(data)
        counts, turns, outbox = self._counts, self._core.turns, self._core.outbox
        while pos < end and not self._stopped and self._state is not State.CLOSED:
            if pos > start and (turns.over() or outbox.behind):
                self._wait_for_turn()
                break
            first = data[pos]
            if pos != tried and self._state is _OPEN and (take := self._together.get(first)) is not None:
                stop = take(self, data, pos)
                tried = stop if data[stop : stop + 1] == data[pos : pos + 1] else -1
                if stop > pos:
                    pos = stop
                    continue
            if first & 0xF0 != 0x30:
                check_first_byte(first)
                connecting, authenticating = self.pending_connect is not None, self.exchange is not None
                check_order(first >> 4, self._state, connecting=connecting, authenticating=authenticating)
            elif self._state is not _OPEN:
                raise ProtocolViolation("PUBLISH before the client is admitted")
            bounds = body_bounds(data, pos, self.size_max, strict=self.version == V5)
            if bounds is None or bounds[1] > end:
                self._reassembly = Reassembly(data[pos:], 0 if bounds is None else bounds[1] - pos)
                return
            body, stop = bounds
            is_publish = first & 0xF0 == 0x30
            if is_publish and not self._may_publish(first):
                break
            counts.packets_received += 1
            if is_publish:
                self._publish(data, first & 15, body, stop)
            else:
                counts.control_bytes_received += stop - pos
                self._control(first, data, body, stop)
            pos = stop
        if self._stopped and self._state is not State.CLOSED:
            self._rest = data[pos:]

    def _may_publish(self, first: int) -> bool:
        """Whether the client's rate, and the memory, allow one more; if not, it is not read until they do."""
        assert self.client is not None
        if first & _QOS and self._core.outbox.crowded and not self._slowed:
            self._slowed = True
            self.stop_reading()
            self._core.loop.call_later(SLOW_S, self.go_on)
            return False
        self._slowed = False
        bucket = self.client.publish_bucket
        if bucket is None or bucket.take(now=self._core.loop.time()):
            return True
        self.stop_reading()
        self._core.loop.call_later(bucket.wait_s(now=self._core.loop.time()), self.go_on)
        return False

    def _publish(self, data: bytes, flags: int, body: int, stop: int) -> None:
        packet = decode_publish(data, flags, body, stop, self.version, self._core.names)
        if packet.properties is not NO_PROPERTIES and packet.properties.subscription_identifiers:
            raise ProtocolViolation("a client must not publish with a subscription identifier")
        assert self.client is not None
        self._handlers.publish(self.client, packet)

    def _control(self, first: int, data: bytes, body: int, stop: int) -> None:
        if first == 0xC0 and body == stop:
            self.send(_PINGRESP)
            return
        packet_type = first >> 4
        if packet_type == PacketType.CONNECT:
            self._connect(data, body, stop)
            return
        packet = BODIES[packet_type](data, first & 15, body, stop, self.version)
        if packet_type == PacketType.AUTH:
            assert isinstance(packet, Auth)
            self._handlers.auth(self, packet)
            return
        assert self.client is not None
        self._dispatch(self.client, packet)

    def _connect(self, data: bytes, body: int, stop: int) -> None:
        try:
            packet = decode_connect(data, body, stop)
        except UnsupportedVersion as error:
            self.version = error.answer_version
            raise
        self.version = packet.version
        self.answer_max = packet.properties.maximum_packet_size or PACKET_SIZE_MAX
        self._state = State.CHECKING
        self.stop_reading()
        self._handlers.connect(self, packet)

    def _dispatch(self, client: Client, packet: Packet) -> None:
        session, outbox = client.session, self._core.outbox
        answers = acknowledge(session, packet, self._core.now_s())
        if answers is not None:
            for data in answers:
                outbox.hold(self, data)
        elif isinstance(packet, Subscribe | Unsubscribe):
            self._finish(self._handlers.subscriptions(client, packet))
        elif isinstance(packet, Disconnect):
            expiry_after(packet, session.expiry_s, self._core.policy_at(self.listener))
            self._shut(packet)
        else:
            raise ProtocolViolation(f"{packet.type.name} is not allowed from a client")

    def _finish(self, steps: Steps) -> bool:
        """Go on with a packet that may take more than one turn; whether it is dealt with."""
        for _ in steps:
            self._steps = steps
            self._wait_for_turn()
            return False
        self._steps = None
        return True

    def _wait_for_turn(self) -> None:
        """Others are served before this connection goes on, and it takes in no more meanwhile. What comes next waits,
        too, as long as anybody does."""
        self._greedy = True
        self.stop_reading()
        self._core.turns.wait(self.go_on)

    # What the broker calls.

    def admitted(self, client: Client, agreement: Agreement, identity: Identity) -> None:
        """The client may come in under these terms."""
        self.client, self.identity = client, identity
        self._state = State.OPEN
        self.heard, self.last_read = False, self._core.loop.time()
        self._admitted_at = self.last_read
        policy, limits = self._core.policy_at(self.listener), self._core.config.limits
        self.size_max = policy.packet_size_max
        self.plain_size_max = min(self.size_max, limits.payload_bytes_max or self.size_max)
        self._together = plain_together(self._together, self.listener.mount_point, policy.qos_max)
        self.keep_alive_s = agreement.keep_alive_s

    @property
    def answered(self) -> bool:
        """Whether anything came from the client since it was let in, so that it knows how."""
        return self.heard or self.last_read > self._admitted_at

    def wait_longer(self, wait_s: float) -> None:
        """Letting the client in takes up to so long from now on."""
        self._extra_s = self._core.loop.time() - self.opened_at + wait_s

    def listen_for_auth(self) -> None:
        """Read on although the client is not let in yet."""
        if self.client is None:
            self._state = State.OPENING
        self.go_on()

    def watch(self) -> None:
        """Notice when the client leaves before it is let in; what it sends meanwhile waits."""
        if self._transport is not None and not self.paused:
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        if not self._stopped:
            self._stopped = True
            if self._transport is not None and not self.paused:
                self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again, first what had already arrived."""
        if not self._stopped or self.closed:
            return
        self._stopped = False
        rest, self._rest = self._rest, b""
        if rest or self._steps is not None:
            self._parse(rest, 0)
        self.read_on()

    def send_packet(self, packet: Packet) -> None:
        """Send it, or end the connection of a client that does not take it and would wait for it."""
        if self.takes(packet):
            self.send(self.short(packet))
        else:
            self._shut(None)

    def refuse(self, connack: Connack) -> None:
        """Turn the client away."""
        self.send_packet(connack)
        self._shut(None, told=True)

    def dismiss(self, reason: ReasonCode, text: str | None = None, *, go_to: str | None = None) -> None:
        """End the connection, telling the client why, and where to `go_to`, as far as its version can be told."""
        if self.closed:
            return
        packet, told = farewell(reason, text, go_to, admitted=self.client is not None), False
        if self.client is not None:
            if self.version == V5:
                self.send(self.client.session.reply(packet))
                told = True
        elif self._state is State.CHECKING or reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
            self.send_packet(packet)
            told = True
        self._shut(None, told=told)

    def _shut(self, farewell: Disconnect | None, *, told: bool = False) -> None:
        if self.closed:
            return
        self._state = State.CLOSED
        client, self.client = self.client, None
        self._handlers.closed(self)
        if client is not None and client.connection is self:
            self._handlers.gone(client, farewell)
        self.write_out()
        transport, self._transport = self._transport, None
        self.write = nowhere
        self._rest, self._reassembly, self.last_route, self._steps = b"", None, None, None
        if transport is not None:
            self._handlers.endings.begin(transport, reads=not self.paused, told=told)

    @property
    def standing(self) -> Standing | None:
        """What is not read or not finished, if it is much."""
        unread = self._transport.get_write_buffer_size() if self.paused and self._transport is not None else 0
        unfinished = 0 if self._reassembly is None else self._reassembly.size
        return (unread, unfinished) if unread or unfinished > BUFFER_BYTES else None

    def check_alive(self, now: float) -> None:
        """Called every second or so: end what has been silent for too long."""
        if self.heard:
            self.heard, self.last_read = False, now
        if self._state is State.OPEN:
            silent = now - self.last_read
            if self.keep_alive_s and silent > self.keep_alive_s * 1.5 and not self._stopped:
                self.dismiss(ReasonCode.KEEP_ALIVE_TIMEOUT)
        elif not self.closed and now - self.opened_at > self._core.config.limits.connect_timeout_s + self._extra_s:
            self._shut(None)
