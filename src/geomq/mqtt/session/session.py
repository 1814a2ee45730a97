"""One client's session on a server: its subscriptions, what is on its way, what outlives its connection.

Packets and messages in, bytes out; time is an argument. It routes nothing, authorises nothing and stores
nothing: steps that must survive a crash are appended to the journal, and the caller sends the returned bytes
only once those are safe.
"""

from collections.abc import Callable, Iterable

from geomq.mqtt.codec.aliases import InboundAliases, OutboundAliases
from geomq.mqtt.codec.encode import encode, encode_within
from geomq.mqtt.codec.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import NEVER_EXPIRES, PACKET_SIZE_MAX, V5
from geomq.mqtt.session.answers import pubrel, unexplained
from geomq.mqtt.session.backlog import Backlog
from geomq.mqtt.session.changes import EventsMissed, Journal
from geomq.mqtt.session.handshake import Agreement, Policy, check_offered
from geomq.mqtt.session.inbound import Inbound
from geomq.mqtt.session.message import ApplicationMessage, Fanout, message_of
from geomq.mqtt.session.outbound import InFlight, Outbound, Phase, Step
from geomq.mqtt.session.outcomes import EXPIRED, QUEUE_FULL, TOO_LARGE, OnDrop, OnFull, Tally, Uncounted, Watch
from geomq.mqtt.session.own_packets import own_packet
from geomq.mqtt.session.subscriptions import Subscription, Terms


class Session:
    """Create it for a new client, `attach` it to each network connection, `detach` it when that ends."""

    __slots__ = (
        "_backlog",
        "_inbound",
        "_inbound_aliases",
        "_journal",
        "_on_drop",
        "_on_full",
        "_outbound",
        "_outbound_aliases",
        "_policy",
        "_problem_information",
        "_tally",
        "_watch",
        "client_id",
        "connected",
        "expires_at",
        "expiry_s",
        "missed",
        "mount",
        "oversized",
        "packet_size_max",
        "stalled",
        "subscriptions",
        "version",
        "will",
        "window",
    )

    def __init__(
        self,
        client_id: str,
        policy: Policy,
        journal: Journal | None = None,
        *,
        tally: Tally | None = None,
        on_drop: OnDrop | None = None,
        on_full: OnFull | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self.client_id = client_id
        self.version = V5
        self.connected = False
        self.stalled = False
        self.expiry_s = 0
        self.expires_at: float | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.will: Will | None = None
        self.window = policy.in_flight_max
        self.packet_size_max = PACKET_SIZE_MAX
        self.oversized = 0
        self.missed = 0
        """Events dropped since the client was last told."""
        self.mount = ""
        self._tally: Tally = tally or Uncounted()
        self._on_drop = on_drop
        self._on_full = on_full
        self._policy = policy
        self._backlog = backlog or Backlog()
        self._journal = journal
        self._problem_information = True
        self._watch: Watch | None = None
        self._inbound: Inbound | None = None
        self._outbound: Outbound | None = None
        self._inbound_aliases: InboundAliases | None = None
        self._outbound_aliases: OutboundAliases | None = None

    @property
    def receiving(self) -> bool:
        """Whether the client has messages of QoS 2 on their way."""
        inbound = self._inbound
        return inbound is not None and bool(inbound.open or inbound.receipts)

    @property
    def durable(self) -> bool:
        """Whether the session keeps a journal because it may outlive its connection."""
        return self._journal is not None

    @property
    def uses_aliases(self) -> bool:
        """Whether the client knows topics by other names, so that its packets are made for it alone."""
        return self._outbound_aliases is not None or bool(self.mount)

    @property
    def dropped(self) -> int:
        """Messages given up because the queue was full or the packet too large."""
        return self.oversized + (self._outbound.dropped if self._outbound is not None else 0)

    @property
    def pending(self) -> int:
        """Messages queued or in flight towards the client."""
        return len(self._outbound) if self._outbound is not None else 0

    @property
    def pending_bytes(self) -> int:
        """What those take in packets."""
        return self._outbound.pending_bytes if self._outbound is not None else 0

    @property
    def full(self) -> bool:
        """Whether so many messages of QoS 1 and 2 wait that another would be dropped."""
        return self._outbound is not None and self._outbound.full

    def renew(self, policy: Policy, *, mount: str = "") -> None:
        """Go on, with the next connection, under a policy that may have changed; the client does not see the mount."""
        self._policy, self.mount = policy, mount
        if self._outbound is not None:
            self._outbound.queue_max, self._outbound.bytes_max = policy.queue_max, policy.queue_bytes_max

    def attach(self, agreement: Agreement, will: Will | None, now: float) -> list[bytes]:
        """A network connection begins. The bytes, due after CONNACK, repeat what is in flight and go on."""
        self.version = agreement.version
        self.expiry_s = agreement.expiry_s
        self.expires_at = None
        self.will = will
        self.window = agreement.window
        self.packet_size_max = agreement.packet_size_max
        self.connected = True
        self.stalled = False
        self._problem_information = agreement.problem_information
        self._inbound_aliases = None
        self._outbound_aliases = OutboundAliases(agreement.alias_max) if agreement.alias_max else None
        if self._inbound is not None:
            self._inbound.connect(self._receive_max)
        if self._outbound is None:
            return []
        self._outbound.connect(self.window)
        return self.pump(now)

    def detach(self, expiry_s: int, now: float) -> None:
        """The network connection is gone; the session lives `expiry_s` longer."""
        self.connected = False
        self.expiry_s = expiry_s
        self.expires_at = None if expiry_s == NEVER_EXPIRES else now + expiry_s
        self.will = None
        self._inbound_aliases = self._outbound_aliases = None
        if self._outbound is not None:
            self._outbound.disconnect()

    def close(self) -> None:
        """The session is over: what waits in it counts no more."""
        if self._outbound is not None:
            self._outbound.close()

    def take_will(self) -> Will | None:
        """The will, which the end of this connection then leaves unpublished."""
        will, self.will = self.will, None
        return will

    @property
    def _receive_max(self) -> int:
        # MQTT 3.1.1 cannot be told a limit, so only the packet identifiers bound it.
        return self._policy.receive_max if self.version == V5 else 65_535

    # From the client.

    def accept(self, publish: Publish, now: float) -> ApplicationMessage | None:
        """The message of a PUBLISH; None for a repeated QoS 2 one, which only needs its PUBREC again."""
        check_offered(publish, self._policy)
        topic = publish.topic
        if publish.properties.topic_alias is not None:
            if self._inbound_aliases is None:
                self._inbound_aliases = InboundAliases(self._policy.alias_max)
            topic = self._inbound_aliases.resolve(publish)
        if publish.qos:
            if self._inbound is None:
                self._inbound = Inbound(self.client_id, receive_max=self._receive_max, journal=self._journal)
            if not self._inbound.accept(publish.packet_id, publish.qos):
                return None
        return message_of(publish, topic=topic, now=now)

    def answer(
        self, packet_id: int, qos: int, reason: ReasonCode = ReasonCode.SUCCESS, text: str | None = None
    ) -> bytes:
        """PUBACK or PUBREC for an accepted PUBLISH, to be sent when its message is safe."""
        if self._inbound is not None:
            self._inbound.answered(packet_id, qos, failed=reason >= ReasonCode.UNSPECIFIED_ERROR)
        if reason == ReasonCode.SUCCESS or self.version != V5:
            return bytes((0x40 if qos == 1 else 0x50, 2, packet_id >> 8, packet_id & 0xFF))
        properties = NO_PROPERTIES if text is None else Properties(reason_string=text)
        packet = (Puback if qos == 1 else Pubrec)(packet_id, reason, properties)
        return self.reply(packet)

    def on_pubrel(self, packet: Pubrel) -> bytes:
        known = self._inbound is not None and self._inbound.release(packet.packet_id)
        reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        return encode(Pubcomp(packet.packet_id, reason), self.version)

    # Towards the client.

    def deliver(self, fanout: Fanout, terms: Terms, *, held: bool = False) -> bytes | None:
        """Take a message for the client: the bytes to send now, none if it waits; None if there is no room. If it
        is `held`, what is sent later may go before."""
        qos, retain, identifiers = terms
        if qos == 0:
            return self._qos0(fanout, terms, held) if self.connected else b""
        delivery = self._take(fanout.message, qos, retain, identifiers, fanout.size)
        if delivery is None:
            return None
        return self._publish_wire(delivery, fanout, again=False) if delivery.phase is Phase.SENT else b""

    def forward(self, message: ApplicationMessage, size: int, head: bytes, tail: bytes) -> bytes | None:
        """As `deliver`, for a plain message of QoS 1 that counts for `size`, and whose packet this is but for its
        identifier, in the version and within the limits of the client."""
        delivery = self._take(message, 1, False, (), size)
        if delivery is None or delivery.phase is not Phase.SENT:
            return None if delivery is None else b""
        self._tally.events_delivered += 1
        return head + delivery.packet_id.to_bytes(2) + tail

    def _take(
        self, message: ApplicationMessage, qos: int, retain: bool, identifiers: tuple[int, ...], size: int
    ) -> InFlight | None:
        outbound = self._outbound
        if outbound is None:
            outbound = self._outbound = self._new_outbound()
        taken = outbound.push(message, qos, retain=retain, identifiers=identifiers, size=size)
        if taken is None and self._on_full is not None and self._on_full(self, outbound, message, size):
            taken = outbound.push(message, qos, retain=retain, identifiers=identifiers, size=size, beyond=True)
        if taken is None:
            outbound.refuse()
            self._gave_up(QUEUE_FULL, message, qos)
        return taken

    def make_room(self, queue: Outbound, size: int, may_go: Callable[[ApplicationMessage], bool]) -> bool:
        """Give up the oldest that may go for a message of this size; whether it may be taken then."""
        given_up, enough = queue.make_room(size, may_go)
        for gone in given_up:
            self._gave_up(QUEUE_FULL, gone.message, gone.qos)
        return enough

    def _gave_up(self, reason: str, message: ApplicationMessage, qos: int) -> None:
        """The message will never be sent."""
        self.miss(1, promised=True)
        if self._on_drop is not None:
            self._on_drop(self, reason)
        if self._watch is not None:
            self._watch(message, qos, reason)

    def miss(self, count: int, *, promised: bool = False) -> None:
        """So many events were dropped; that some were promised is remembered as long as the session is."""
        self.missed += count
        if promised and self._journal is not None:
            self._journal.append(EventsMissed(self.client_id, self.missed))

    def told_missed(self) -> int:
        """How many events were dropped since this was last asked."""
        missed, self.missed = self.missed, 0
        if missed and self._journal is not None:
            self._journal.append(EventsMissed(self.client_id, 0))
        return missed

    def _qos0(self, fanout: Fanout, terms: Terms, held: bool) -> bytes:
        if terms.identifiers or self.uses_aliases:
            data = self._own_packet(fanout, terms, 0, again=False, in_order=not held)
        else:
            data = fanout.qos0(self.version, retain=terms.retain)
        if len(data) > self.packet_size_max:
            self.oversized += 1
            return b""
        return data

    def on_puback(self, packet: Puback, now: float) -> list[bytes]:
        return self.pump(now) if self.on_pubacks((packet.packet_id,)) else []

    def on_pubacks(self, packet_ids: Iterable[int]) -> bool:
        """The same for several that came together, but only whether anything waits that may go now."""
        outbound = self._outbound
        return outbound is not None and outbound.acknowledge(packet_ids) and outbound.waiting

    def on_pubrec(self, packet: Pubrec, now: float) -> list[bytes]:
        failed = packet.reason >= ReasonCode.UNSPECIFIED_ERROR
        outbound = self._outbound
        if outbound is not None and outbound.receive(packet.packet_id, failed=failed):
            return [pubrel(packet.packet_id)]
        if failed:
            return self.pump(now)
        return [encode(Pubrel(packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), self.version)]

    def on_pubcomp(self, packet: Pubcomp, now: float) -> list[bytes]:
        if self._outbound is None or not self._outbound.complete(packet.packet_id):
            return []
        return self.pump(now)

    def stall(self) -> None:
        """The client does not read: queue what is for it, however open its window."""
        self.stalled = True
        if self._outbound is not None:
            self._outbound.stalled = True

    def go_on(self, now: float) -> list[bytes]:
        """The client reads again."""
        self.stalled = False
        if self._outbound is None:
            return []
        self._outbound.stalled = False
        return self.pump(now)

    def reply(self, packet: Packet) -> bytes:
        """Encode any answer within what the client accepts and wants to read."""
        allowed = packet if self._problem_information else unexplained(packet)
        return encode_within(allowed, self.version, self.packet_size_max)

    def withdraw(self, unwanted: Callable[[ApplicationMessage], bool], why: str) -> int:
        """Give up what waits for the client but is not for it any more; how many that were."""
        gone = [] if self._outbound is None else self._outbound.withdraw(unwanted)
        if self._watch is not None:
            for delivery in gone:
                self._watch(delivery.message, delivery.qos, why)
        return len(gone)

    def watch(self, watch: Watch | None) -> None:
        """Report what becomes of QoS 1 and 2 messages."""
        self._watch = watch

    # Persistence.

    def forget_journal(self) -> None:
        """The session became one that ends with its connection."""
        self._journal = None
        if self._outbound is not None:
            self._outbound.forget_journal()
        if self._inbound is not None:
            self._inbound.forget_journal()

    def leave(self, version: int, expiry_s: int, expires_at: float | None, *, mount: str = "") -> None:
        """Be as a client of that version left it."""
        self.version, self.expiry_s, self.expires_at, self.mount = version, expiry_s, expires_at, mount

    def restore(self, deliveries: list[InFlight], receipts: list[int]) -> None:
        """Put back what a store remembered, deliveries in the order of their numbers. While the client is connected
        `pump` sends them."""
        if deliveries:
            self.close()
            self._outbound = outbound = self._new_outbound()
            for delivery in deliveries:
                outbound.restore(delivery)
            if self.connected:
                outbound.connect(self.window)
                outbound.stalled = self.stalled
        if receipts:
            self._inbound = Inbound(self.client_id, receive_max=self._receive_max, journal=self._journal)
            for packet_id in receipts:
                self._inbound.restore(packet_id)

    def unfinished(self) -> tuple[list[InFlight], list[int]]:
        """What `restore` would need: deliveries in the order of their numbers, and receipts."""
        deliveries = [] if self._outbound is None else self._outbound.unfinished()
        return deliveries, [] if self._inbound is None else list(self._inbound.receipts)

    def requeue(self, delivery: InFlight, now: float) -> list[bytes]:
        """Take over a message from another session of the client; the bytes are to be sent now.

        If the client may have had it already, it is sent with the DUP flag.
        """
        if self._outbound is None:
            self._outbound = self._new_outbound()
        if delivery.phase is Phase.SENT and self._outbound.adopt(delivery):
            return self.pump(now)
        data = self.deliver(Fanout(delivery.message, now), Terms(delivery.qos, delivery.retain, delivery.identifiers))
        return [data] if data else []

    def _new_outbound(self) -> Outbound:
        outbound = Outbound(
            self.client_id,
            queue_max=self._policy.queue_max,
            bytes_max=self._policy.queue_bytes_max,
            journal=self._journal,
            packet_ids=self._policy.packet_ids,
            backlog=self._backlog,
        )
        if self.connected:
            outbound.connect(self.window)
            outbound.stalled = self.stalled
        return outbound

    def pump(self, now: float) -> list[bytes]:
        """What waited and may be sent now."""
        out: list[bytes] = []
        while self._outbound is not None and self._outbound.waiting:
            steps = self._outbound.pump(now)
            for lapsed in self._outbound.take_lapsed():
                self._gave_up(EXPIRED, lapsed.message, lapsed.qos)
            wires = [self._step_wire(step, now) for step in steps]
            out += filter(None, wires)
            if all(wires):
                break
        return out

    def _step_wire(self, step: Step, now: float) -> bytes:
        delivery = step.delivery
        if delivery.phase is Phase.RELEASED:
            return pubrel(delivery.packet_id)
        return self._publish_wire(delivery, Fanout(delivery.message, now), again=step.again)

    def _publish_wire(self, delivery: InFlight, fanout: Fanout, *, again: bool) -> bytes:
        packet_id = delivery.packet_id
        if again or delivery.identifiers or self.uses_aliases:
            terms = Terms(delivery.qos, delivery.retain, delivery.identifiers)
            data = self._own_packet(fanout, terms, packet_id, again=again)
        else:
            head, tail = fanout.parts(self.version, delivery.qos, retain=delivery.retain)
            data = b"%b%c%c%b" % (head, packet_id >> 8, packet_id & 0xFF, tail)
        if len(data) > self.packet_size_max:
            assert self._outbound is not None
            self._outbound.abandon(delivery)
            self._gave_up(TOO_LARGE, delivery.message, delivery.qos)
            return b""
        if not again:
            self._tally.events_delivered += 1
            if self._watch is not None:
                self._watch(delivery.message, delivery.qos, None)
        return data

    def _own_packet(self, fanout: Fanout, terms: Terms, packet_id: int, *, again: bool, in_order: bool = True) -> bytes:
        """One made for this client alone. Aliases are for packets that keep their order."""
        aliases = self._outbound_aliases if in_order else None
        size_max, mount = self.packet_size_max, self.mount
        return own_packet(fanout, self.version, terms, packet_id, aliases, mount, size_max, again=again)
