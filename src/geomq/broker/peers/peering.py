"""The links to all other brokers: who is there, what goes over which link.

It carries messages and decides nothing about them. The link protocol on top makes sure that nothing is lost, doubled
or reordered, whatever the connections do.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from geomq.broker.peers.channel import Credentials, PeerChannel
from geomq.broker.peers.deadlines import for_wire, from_wire
from geomq.broker.peers.dialling import Dialler
from geomq.broker.peers.flushes import Flushes
from geomq.broker.peers.latency import Latency
from geomq.broker.peers.namesakes import RETRY_S, Namesakes
from geomq.broker.peers.peer_settings import DEFAULT_LIMITS, PeerAddress, PeerLimits, TlsNow
from geomq.broker.peers.refusals import PeerRefusals
from geomq.broker.peers.store import OUTBOX, Notes, PeerStore
from geomq.broker.peers.unknown_brokers import UnknownBrokerHandler, UnknownBrokers, Unproven
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.sockets.accepting import Server
from geomq.broker.state.drops import Reason
from geomq.broker.state.links import Send
from geomq.broker.state.turns import Turns
from geomq.errors import ProtocolError
from geomq.routing.core.events import LatencyMeasured, PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.core.messages import Message, is_promised
from geomq.routing.core.model import BrokerId, Edition
from geomq.routing.core.plan import EventBatch
from geomq.routing.federation.edition_messages import unwrapped, wrapped
from geomq.routing.wire.frames import BUILT_IN, Aside, AskToJoin, LooseBatch, NameTaken, Ping, Pong, Refused, unsendable
from geomq.routing.wire.link import TAKEN, Data, Frame, Link, LinkOutput, MayGo, WhenFull, anything_may_go, runs

log = logging.getLogger("geomq.peers")

RESEND_MS, PROBE_S, SILENCE_S_MAX = 5_000.0, 1.0, 6.0
WINDOW = 2048
_NUMBER = attrgetter("number")


class _Peer:
    """What is known of one peer."""

    def __init__(self, name: BrokerId, link: Link, dialler: Dialler) -> None:
        self.name = name
        self.link = link
        self.dialler = dialler
        self.channel: PeerChannel | None = None
        self.up = False
        self.waits = self.waits_for_disk = False
        """Whether the link took something in this tick that is not pumped yet, and whether it has to be safe first."""
        self.promised: list[Data] = []
        """What of it is to be kept on disk."""
        self.erased = 0
        """The first number of its link that may still be on disk."""
        self.held = 0
        self.heard_s = 0.0
        self.latency = Latency()
        self.timer: asyncio.TimerHandle | None = None


class Peering:
    """All links of one broker; the core's `links`."""

    def __init__(
        self,
        *,
        me: BrokerId,
        peers: Mapping[BrokerId, PeerAddress | None],
        handle: Callable[[RoutingEvent], object],
        credentials: Credentials,
        refusals: PeerRefusals,
        kept: PeerStore | None = None,
        notes: Notes | None = None,
        limits: PeerLimits = DEFAULT_LIMITS,
        dial_tls: TlsNow = lambda: None,
        lost: Callable[[BrokerId, Message, Reason], object] = lambda _, __, ___: None,
        on_full: Callable[[BrokerId, Link, Message, int], WhenFull] | None = None,
        may_go: MayGo = anything_may_go,
        unknown_broker_handler: UnknownBrokerHandler | None = None,
        platform: Platform = SYSTEM,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._me = me
        self._platform, self._now_s = platform, now_s or platform.wall_s
        self._lost, self._on_full, self._may_go = lost, on_full, may_go
        self._handle = handle
        self.credentials = credentials
        self._refusals = refusals
        self._limits = limits
        self._dial_tls = dial_tls
        self._kept = kept
        self._notes = {kind: kept for kind, kept in (notes or {}).items() if kind.startswith(OUTBOX)}
        self._peers = {name: self._new_peer(name, address) for name, address in peers.items()}
        self._server: Server | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._unknown_brokers = UnknownBrokers(unknown_broker_handler)
        self._namesakes = Namesakes(me, refusals, self._take_over)
        self._unproven = Unproven()
        self._closing = False
        self._flushes = Flushes()
        self._waiting: list[_Peer] = []
        if kept is not None:
            kept.before_writing(self._push)

    def _new_peer(self, name: BrokerId, address: PeerAddress | None) -> _Peer:
        link = Link(
            epoch=self._platform.new_epoch(),  # for each anew: it may not have heard that it was forgotten before
            retry_ms=RESEND_MS,
            outbox_max=self._limits.outbox_max,
            outbox_bytes_max=self._limits.outbox_bytes_max,
            on_full=None if self._on_full is None else partial(self._on_full, name),
            may_go=self._may_go,
            window=WINDOW,
            unsent=[] if self._kept is None else self._kept.load_outbox(name, self._notes),
        )
        self._notes.pop(OUTBOX + name, None)
        dialler = Dialler(
            name,
            address,
            ours=self._me < name,
            tls=self._dial_tls,
            make_channel=partial(self._channel, name),
            is_missing=lambda: peer.channel is None,
            platform=self._platform,
        )
        peer = _Peer(name, link, dialler)
        return peer

    async def start(self, host: str | None, port: int | None, tls: TlsNow = lambda: None) -> None:
        """Listen for peers (if there is a port) and dial those that are ours to dial."""
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(self._loop, self._platform.turn_ns)  # their own: peers never wait behind clients
        if port is not None:
            self._server = await self._platform.open_server(
                lambda: self._channel(None), host, port, tls=tls, end=self._platform.descriptors().peers_end
            )
        for peer in self._peers.values():
            peer.dialler.start()
        self._probe_all()

    @property
    def port(self) -> int | None:
        """Where peers connect, once started."""
        return None if self._server is None else self._server.addresses[0][1]

    @property
    def connected(self) -> tuple[BrokerId, ...]:
        return tuple(name for name, peer in self._peers.items() if peer.up)

    @property
    def waiting(self) -> tuple[int, int]:
        """How many messages peers have not acknowledged, and the bytes they take."""
        peers = self._peers.values()
        return sum(peer.link.waiting for peer in peers), sum(peer.link.waiting_bytes for peer in peers)

    def latency_ms(self, peer: BrokerId) -> float | None:
        """One way over the link, as a moving mean; None if it was not measured yet."""
        known = self._peers.get(peer)
        return None if known is None or not known.up else known.latency.mean_ms

    async def stop(self) -> None:
        self._closing = True
        if self._probe is not None:
            self._probe.cancel()
        if self._server is not None:
            self._server.close()
        self._unknown_brokers.close()
        self._namesakes.close()
        for peer in self._peers.values():
            peer.dialler.stop()
            if peer.timer is not None:
                peer.timer.cancel()
            if peer.channel is not None:
                peer.channel.close("this broker is shutting down")

    def end_untrusted(self, refusal: Callable[[bytes], str | None]) -> None:
        """End the links to peers whose certificate (DER) is refused now, and say why."""
        for peer in self._peers.values():
            certificate = None if peer.channel is None else peer.channel.certificate
            problem = None if certificate is None else refusal(certificate)
            if peer.channel is not None and problem is not None:
                log.warning("link ended", extra={"peer": peer.name, "reason": problem})
                peer.channel.close(problem)

    def set_peers(self, peers: Mapping[BrokerId, PeerAddress | None]) -> None:
        """The federation changed: forget who left, dial who came."""
        for name in [name for name in self._peers if name not in peers]:
            self._forget(self._peers.pop(name))
        for name, address in peers.items():
            known = self._peers.get(name)
            if known is None:
                known = self._peers[name] = self._new_peer(name, address)
            known.dialler.move(address)
            if known.channel is None:
                known.dialler.start()

    def _forget(self, gone: _Peer) -> None:
        gone.dialler.stop()
        if gone.timer is not None:
            gone.timer.cancel()
        self._namesakes.forget(gone.name, "no longer a peer")
        if gone.channel is not None:
            channel, gone.channel = gone.channel, None
            channel.close("no longer a peer")
            self._down(gone)
        gone.waits, gone.promised = False, []
        for message in gone.link.durable():
            self._lost(gone.name, message, Reason.PEER_LEFT)
        gone.link.clear()
        if self._kept is not None:
            self._kept.forget_outbox(gone.name)

    def send(self, peer: BrokerId, message: Message) -> None:
        """Send a message to a peer, at the end of this tick or once it is linked; other brokers get none."""
        known = self._peers.get(peer)
        if known is None:
            return
        problem = None if type(message) in BUILT_IN else unsendable(message)
        if problem is not None:
            self.unsent(peer, message, problem)
            return
        promised = is_promised(message)
        durable = self._kept is not None and (promised or message.after_disk)
        if durable and known.waits and not known.waits_for_disk:
            self._pump(known)
        output = known.link.take(message)
        if output is not TAKEN:
            self._gave_up(known, message, output)
            promised = promised and not any(lost is message for lost in output.lost)
        if promised and self._kept is not None:
            known.promised.append(Data(known.link.epoch, known.link.latest, message))
        if not known.waits:
            known.waits = True
            self._waiting.append(known)
            if len(self._waiting) == 1:
                self._loop.call_soon(self._push)
        known.waits_for_disk = known.waits_for_disk or durable

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        """Send events of QoS 0, now. They are never sent again, so they need a number only to wait behind others."""
        known = self._peers.get(peer)
        if known is None:
            return
        channel, behind = known.channel, known.waits or known.held or not known.link.is_clear
        if behind or channel is None or not channel.send_loose(batch, edition):
            self.send(peer, wrapped(batch, edition))
            self._pump(known)

    def room(self, peer: BrokerId, size: int) -> int:
        """How many more events may wait for a peer, of so many bytes together."""
        known = self._peers.get(peer)
        return sys.maxsize if known is None else known.link.room(size)

    def once_flushed(self, peer: BrokerId, message: Message, send: Send) -> None:
        """Have a message sent as soon as all that was sent so far, to any peer, has arrived."""
        self._flushes.add(peer, message, {name: known.link for name, known in self._peers.items()}, send)
        self._flushes.send({name: known.link for name, known in self._peers.items()})

    def _gave_up(self, peer: _Peer, message: Message, output: LinkOutput) -> None:
        """The link had no room for the message, or for others with it."""
        for lost in output.lost:
            waited = lost is not message or peer.link.state == "up" or is_promised(lost)
            self._lost(peer.name, lost, Reason.QUEUE_FULL if waited else Reason.LINK_DOWN)
        if output.overrun and peer.channel is not None:
            peer.channel.close("the peer stopped reading")
        if output.frames and peer.channel is not None:
            self._emit(peer, peer.channel, output.frames, durable=False)
        if peer.waits:
            self._pump(peer)
        if self._kept is not None:
            for number in output.lost_numbers:
                self._kept.given_up(peer.name, number)
            if output.lost_numbers:
                self._kept.acknowledged(peer.name, peer.link.acknowledged)

    def _push(self) -> None:
        """Put on the wire what was sent in this tick."""
        waiting, self._waiting = self._waiting, []
        for peer in waiting:
            if peer.waits:
                self._pump(peer)

    def _pump(self, peer: _Peer) -> None:
        durable, peer.waits, peer.waits_for_disk = peer.waits_for_disk, False, False
        pumped = peer.link.pump(now=self._now_ms())
        leaving, frames = for_wire(pumped, self._now_s()), list[Frame | bytes]()
        if peer.promised and self._kept is not None:
            promised, peer.promised = peer.promised, []
            kept: list[Frame | bytes] = [self._kept.keep(peer.name, frame) for frame in runs(promised)]
            same = leaving is pumped and list(map(_NUMBER, pumped)) == list(map(_NUMBER, promised))
            if same and b"" not in kept:
                frames = kept
        if pumped and peer.channel is not None:
            self._emit(peer, peer.channel, frames or runs(leaving), durable=durable)
        self._watch(peer)

    def _channel(self, expected: str | None) -> PeerChannel:
        return PeerChannel(
            self.credentials,
            self,
            expected=expected,
            frame_bytes_max=self._limits.frame_bytes_max,
            turns=self._turns,
        )

    def made(self, channel: PeerChannel) -> None:
        """A connection is open and has yet to prove a name."""
        if channel.expected is None:
            self._unproven.add(channel)

    # What channels report.

    def opened(self, channel: PeerChannel) -> bool:
        """A peer proved its name: its link uses this connection from now on."""
        self._unproven.discard(channel)
        peer = self._peers.get(BrokerId(channel.peer or ""))
        if self._closing:
            return False
        if channel.peer == self._me:
            self._namesakes.met(channel)
        elif peer is None:
            return self._unknown_brokers.accept(channel)
        elif peer.channel is not None and peer.channel.epoch != channel.epoch:
            self._namesakes.challenge(peer, channel)
        else:
            self._take_over(peer, channel)
        return True

    def _take_over(self, peer: _Peer, channel: PeerChannel, asked: AskToJoin | None = None) -> None:
        """From now on the peer is reached by this connection, over which it may have asked to join."""
        if peer.channel is not None:
            before, peer.channel = peer.channel, None
            before.close("replaced by a new connection")
            self._down(peer)
        peer.channel = channel
        peer.heard_s = self._loop.time()
        self._carry_out(peer, peer.link.connected(now=self._now_ms()))
        if asked is not None:
            self.heard(channel, asked)

    def heard(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        peer = self._peers.get(BrokerId(channel.peer or ""))
        if peer is None or peer.channel is not channel:
            for waiting in (self._unknown_brokers, self._namesakes):
                if channel in waiting:
                    waiting.received(channel, frame)
            return
        peer.heard_s = self._loop.time()
        if isinstance(frame, Frame):
            if peer.waits:
                self._pump(peer)  # or the link might, and not wait for the disk
            self._carry_out(peer, peer.link.receive(frame, now=peer.heard_s * 1000.0))
        elif isinstance(frame, LooseBatch):
            if peer.up:
                self._take(peer, EventBatch(frame.epoch, frame.at_ms, frame.entries, (frame.packets,)), frame.edition)
        elif isinstance(frame, Ping):
            channel.send(Pong(frame.token))
        elif isinstance(frame, Pong):
            one_way_ms = peer.latency.measure(self._platform.perf_ns() - frame.token)
            if one_way_ms is not None:
                self._handle(LatencyMeasured(peer.name, one_way_ms))
        elif isinstance(frame, NameTaken):
            peer.dialler.refused(for_s=RETRY_S)
            self._refusals.name_taken(self._me, by=peer.name, mine=frame.refused, linked=frame.linked)
        else:
            self._unknown_brokers.said_by_peer(channel, frame)

    def unsent(self, peer: BrokerId, message: Message, reason: str) -> None:
        self._refusals.unsent(peer, type(unwrapped(message)[0]).__name__, reason)
        self._lost(peer, message, Reason.UNSENDABLE)

    def closed(self, channel: PeerChannel, reason: str) -> None:
        self._unproven.discard(channel)
        peer = self._peers.get(BrokerId(channel.peer or ""))
        if self._unknown_brokers.closed(channel) or self._namesakes.closed(channel):
            return
        if peer is not None and peer.channel is channel:
            log.info("peer disconnected", extra={"peer": peer.name, "reason": reason})
            peer.channel = None
            self._down(peer)
            if not self._closing:
                self._namesakes.peer_closed(peer)
                peer.dialler.start()
        elif channel.peer is None and not self._closing:
            self._refusals.broker(channel.address, reason)

    def _down(self, peer: _Peer) -> None:
        peer.link.disconnected()
        if peer.up:
            peer.up = False
            if not self._closing:
                self._handle(PeerDown(peer.name))

    def _carry_out(self, peer: _Peer, output: LinkOutput, *, durable: bool = False) -> None:
        """What a link puts out goes before what the node sends because of its news; but an acknowledgement says that
        messages have been dealt with, so they are first."""
        for message in output.messages:
            self._take(peer, *unwrapped(from_wire(message, self._now_s())))
            durable = durable or (self._kept is not None and is_promised(message))
        if self._kept is not None and peer.link.acknowledged != peer.erased:
            peer.erased = peer.link.acknowledged
            self._kept.acknowledged(peer.name, peer.erased)
        if self._flushes:
            self._flushes.send({name: known.link for name, known in self._peers.items()})
        if output.frames and peer.channel is not None:
            data = for_wire([frame for frame in output.frames if isinstance(frame, Data)], self._now_s())
            durable = durable or any(is_promised(frame.message) for frame in data)
            frames = [*(frame for frame in output.frames if not isinstance(frame, Data)), *runs(data)]
            self._emit(peer, peer.channel, frames, durable=durable)
        if output.came_up:
            log.info("peer connected", extra={"peer": peer.name})
            peer.up = True
            peer.dialler.linked()
            self._handle(PeerUp(peer.name))
        self._watch(peer)

    def _take(self, peer: _Peer, message: Message, edition: Edition | None) -> None:
        """Hand on a message of a peer. One that cannot be taken in does no harm to others, nor to the link."""
        if type(message) is Refused:
            self._refusals.received(peer.name, message)
            return
        try:
            self._handle(PeerSaid(peer.name, message, edition))
        except ProtocolError as error:
            self._refusals.received(peer.name, Refused(type(message).__name__, str(error), is_promised(message)))
        except Exception as error:
            self._refusals.failed(peer.name, type(message).__name__, error)

    def _emit(self, peer: _Peer, channel: PeerChannel, frames: Sequence[Frame | bytes], *, durable: bool) -> None:
        """Write frames now, or once the disk has what they acknowledge; never out of order."""
        if self._kept is None or not (durable or peer.held):
            channel.send_all(frames)
            return
        peer.held += 1
        self._kept.when_safe(partial(self._release, peer, channel, frames))

    def _release(self, peer: _Peer, channel: PeerChannel, frames: Sequence[Frame | bytes]) -> None:
        peer.held -= 1
        if peer.channel is channel:
            channel.send_all(frames)

    # The clock.

    def _now_ms(self) -> float:
        return self._loop.time() * 1000.0

    def _watch(self, peer: _Peer) -> None:
        """Call the link when it asked to be called; a deadline that moved later is looked at when it comes."""
        if peer.timer is None and not self._closing and (deadline := peer.link.next_deadline()) is not None:
            peer.timer = self._loop.call_at(deadline / 1000.0, self._due, peer)

    def _due(self, peer: _Peer) -> None:
        peer.timer = None
        if peer.waits:
            self._pump(peer)
        self._carry_out(peer, peer.link.on_deadline(now=self._now_ms()))

    def _probe_all(self) -> None:
        self._probe = self._loop.call_later(PROBE_S, self._probe_all)
        for peer in self._peers.values():
            if peer.channel is None:
                continue
            if self._loop.time() - peer.heard_s > SILENCE_S_MAX:
                peer.channel.close("the peer stopped sending")
            else:
                peer.channel.send(Ping(self._platform.perf_ns()))
