"""The links to all other brokers: who dials whom, who is there, what goes over which link.

It carries messages and decides nothing about them. Of two brokers the one whose name sorts first dials; a broken
connection is dialled again after a growing pause. The link protocol on top makes sure that nothing is lost, doubled
or reordered, whatever the connections do.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from geomq.broker.peer_channel import Credentials, PeerChannel
from geomq.broker.peer_store import Notes, PeerStore
from geomq.routing.events import LatencyMeasured, PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.link import Frame, Link, LinkOutput, is_promised
from geomq.routing.messages import Message
from geomq.routing.model import BrokerId
from geomq.routing.wire import Aside, Ping, Pong

log = logging.getLogger("geomq.peers")

RETRY_S = (0.1, 10.0)
RESEND_MS = 5_000.0
PROBE_S = 1.0
SILENCE_S_MAX = 6.0
WINDOW = 2048


class PeerAddress(NamedTuple):
    host: str
    port: int


class PeerLimits(NamedTuple):
    frame_bytes_max: int = 1 << 24
    outbox_max: int = 100_000


DEFAULT_LIMITS = PeerLimits()


class _Peer:
    """What is known of one peer."""

    def __init__(self, name: BrokerId, address: PeerAddress | None, link: Link) -> None:
        self.name = name
        self.address = address
        self.link = link
        self.channel: PeerChannel | None = None
        self.up = False
        self.held = 0
        self.heard_s = 0.0
        self.pause_s = RETRY_S[0]
        self.dial: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Peering:
    """All links of one broker; the core's `links`."""

    def __init__(
        self,
        *,
        me: BrokerId,
        epoch: int,
        peers: Mapping[BrokerId, PeerAddress | None],
        handle: Callable[[RoutingEvent], object],
        credentials: Credentials,
        kept: PeerStore | None = None,
        notes: Notes | None = None,
        limits: PeerLimits = DEFAULT_LIMITS,
        dial_tls: ssl.SSLContext | None = None,
        lost: Callable[[BrokerId, Message, str], object] = lambda _, __, ___: None,
    ) -> None:
        self._me = me
        self._lost = lost
        self._handle = handle
        self._credentials = credentials
        self._limits = limits
        self._dial_tls = dial_tls
        self._epoch = epoch
        self._kept = kept
        self._notes: Notes = notes or {}
        self._peers = {name: self._new_peer(name, address) for name, address in peers.items()}
        self._server: asyncio.Server | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._closing = False

    def _new_peer(self, name: BrokerId, address: PeerAddress | None) -> _Peer:
        link = Link(
            epoch=self._epoch,
            retry_ms=RESEND_MS,
            outbox_max=self._limits.outbox_max,
            window=WINDOW,
            unsent=[] if self._kept is None else self._kept.load_outbox(name, self._notes),
        )
        return _Peer(name, address, link)

    async def start(self, host: str | None, port: int | None, tls: ssl.SSLContext | None = None) -> None:
        """Listen for peers (if there is a port) and dial those that are ours to dial."""
        self._loop = asyncio.get_running_loop()
        if port is not None:
            self._server = await self._loop.create_server(lambda: self._channel(None), host, port, ssl=tls)
        for peer in self._peers.values():
            self._dial(peer)
        self._probe_all()

    @property
    def port(self) -> int | None:
        """Where peers connect, once started."""
        return None if self._server is None else int(self._server.sockets[0].getsockname()[1])

    @property
    def connected(self) -> tuple[BrokerId, ...]:
        return tuple(name for name, peer in self._peers.items() if peer.up)

    async def stop(self) -> None:
        self._closing = True
        if self._probe is not None:
            self._probe.cancel()
        if self._server is not None:
            self._server.close()
        for peer in self._peers.values():
            for pending in (peer.dial, peer.timer):
                if pending is not None:
                    pending.cancel()
            if peer.channel is not None:
                peer.channel.close("this broker stops")

    def set_peers(self, peers: Mapping[BrokerId, PeerAddress | None]) -> None:
        """The federation changed: forget who left, dial who came."""
        for name in [name for name in self._peers if name not in peers]:
            gone = self._peers.pop(name)
            if gone.dial is not None:
                gone.dial.cancel()
            if gone.timer is not None:
                gone.timer.cancel()
            if gone.channel is not None:
                gone.channel.close("no longer a peer")
        for name, address in peers.items():
            if name not in self._peers:
                self._peers[name] = self._new_peer(name, address)
                self._dial(self._peers[name])

    def send(self, peer: BrokerId, message: Message) -> None:
        """Send a message to a peer, now or when it is there; one to a stranger goes nowhere."""
        known = self._peers.get(peer)
        if known is None:
            return
        output = known.link.send(message, now=self._now_ms())
        if output.lost is not None:
            self._lost(peer, output.lost, "link down" if output.lost is message else "link queue full")
        durable = self._kept is not None and is_promised(message)
        if self._kept is not None and durable:
            self._kept.keep(peer, known.link.latest, message)
        self._carry_out(known, output, durable=durable)

    def _channel(self, expected: str | None) -> PeerChannel:
        return PeerChannel(self._credentials, self, expected=expected, frame_bytes_max=self._limits.frame_bytes_max)

    def _dial(self, peer: _Peer) -> None:
        if peer.address is not None and self._me < peer.name and peer.dial is None and not self._closing:
            peer.dial = self._loop.create_task(self._keep_dialling(peer, peer.address))

    async def _keep_dialling(self, peer: _Peer, address: PeerAddress) -> None:
        """Try until there is a connection; its end starts this anew."""
        while peer.channel is None and not self._closing:
            try:
                await self._loop.create_connection(
                    lambda: self._channel(peer.name),
                    address.host,
                    address.port,
                    ssl=self._dial_tls,
                    server_hostname=peer.name if self._dial_tls is not None else None,
                )
            except (OSError, ssl.SSLError) as error:
                log.debug("peer not reached", extra={"peer": peer.name, "reason": str(error)})
            await asyncio.sleep(peer.pause_s * random.uniform(0.5, 1.0))
            peer.pause_s = min(2 * peer.pause_s, RETRY_S[1])
        peer.dial = None

    # What channels say.

    def opened(self, channel: PeerChannel) -> bool:
        """A peer proved its name: its link uses this connection from now on."""
        peer = self._peers.get(BrokerId(channel.peer or ""))
        if peer is None or self._closing:
            return False
        if peer.channel is not None:
            before, peer.channel = peer.channel, None
            before.close("replaced by a new connection")
            self._down(peer)
        peer.channel = channel
        peer.heard_s = self._loop.time()
        peer.pause_s = RETRY_S[0]
        self._carry_out(peer, peer.link.connected(now=self._now_ms()))
        return True

    def heard(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        peer = self._peers.get(BrokerId(channel.peer or ""))
        if peer is None or peer.channel is not channel:
            return
        peer.heard_s = self._loop.time()
        if isinstance(frame, Ping):
            channel.send(Pong(frame.token))
        elif isinstance(frame, Pong):
            round_trip_ms = (time.perf_counter_ns() - frame.token) / 1e6
            if 0 <= round_trip_ms < 600_000:
                self._handle(LatencyMeasured(peer.name, round_trip_ms / 2))
        elif isinstance(frame, Frame):
            self._carry_out(peer, peer.link.receive(frame, now=self._now_ms()))

    def closed(self, channel: PeerChannel, reason: str) -> None:
        peer = self._peers.get(BrokerId(channel.peer or ""))
        if peer is not None and peer.channel is channel:
            log.info("peer gone", extra={"peer": peer.name, "reason": reason})
            peer.channel = None
            self._down(peer)
            self._dial(peer)
        elif channel.peer is None and not self._closing:
            log.warning("peer refused", extra={"reason": reason})

    def _down(self, peer: _Peer) -> None:
        peer.link.disconnected()
        if peer.up:
            peer.up = False
            if not self._closing:
                self._handle(PeerDown(peer.name))

    def _carry_out(self, peer: _Peer, output: LinkOutput, *, durable: bool = False) -> None:
        """What a link puts out goes before what its news makes the node say; but an acknowledgement says that
        messages have been dealt with, so they are first."""
        for message in output.messages:
            self._handle(PeerSaid(peer.name, message))
            durable = durable or (self._kept is not None and is_promised(message))
        if self._kept is not None:
            self._kept.acknowledged(peer.name, peer.link.acknowledged)
        if output.frames and peer.channel is not None:
            self._emit(peer, peer.channel, output.frames, durable=durable)
        if output.came_up:
            log.info("peer there", extra={"peer": peer.name})
            peer.up = True
            self._handle(PeerUp(peer.name))
        self._watch(peer)

    def _emit(self, peer: _Peer, channel: PeerChannel, frames: list[Frame], *, durable: bool) -> None:
        """Write frames now, or once the disk has what they speak of; never out of order."""
        if self._kept is None or not (durable or peer.held):
            for frame in frames:
                channel.send(frame)
            return
        peer.held += 1
        self._kept.when_safe(partial(self._release, peer, channel, frames))

    def _release(self, peer: _Peer, channel: PeerChannel, frames: list[Frame]) -> None:
        peer.held -= 1
        if peer.channel is channel:
            for frame in frames:
                channel.send(frame)

    # The clock.

    def _now_ms(self) -> float:
        return self._loop.time() * 1000.0

    def _watch(self, peer: _Peer) -> None:
        """Call the link when it asked to be called; a deadline that moved later is looked at when it comes."""
        deadline = peer.link.next_deadline()
        if deadline is not None and peer.timer is None and not self._closing:
            peer.timer = self._loop.call_at(deadline / 1000.0, self._due, peer)

    def _due(self, peer: _Peer) -> None:
        peer.timer = None
        self._carry_out(peer, peer.link.on_deadline(now=self._now_ms()))

    def _probe_all(self) -> None:
        self._probe = self._loop.call_later(PROBE_S, self._probe_all)
        for peer in self._peers.values():
            if peer.channel is None:
                continue
            if self._loop.time() - peer.heard_s > SILENCE_S_MAX:
                peer.channel.close("the peer fell silent")
            else:
                peer.channel.send(Ping(time.perf_counter_ns()))
