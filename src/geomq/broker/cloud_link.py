"""The connection to the cloud of broadcast groups: dialled, kept alive, dialled again after a growing pause.

The cloud is any MQTT 5 broker. One that speaks only MQTT 3.1.1 is refused: it could carry neither event ids nor
geo-context, and echoes could only be guessed from payloads. What is said on the connection is `cloud_session`'s.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from geomq.broker.cloud_codec import CloudReader
from geomq.broker.cloud_kept import CloudKept
from geomq.broker.cloud_session import CloudSession
from geomq.broker.config import Cloud
from geomq.broker.core import Core
from geomq.broker.driver import Links
from geomq.broker.peer_store import Notes, PeerStore
from geomq.broker.platform import SYSTEM
from geomq.errors import ConfigError, ProtocolError
from geomq.mqtt.decoder import Decoder, Side
from geomq.mqtt.encode import encode
from geomq.mqtt.packets import Connack, Connect, Disconnect
from geomq.mqtt.properties import Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5
from geomq.routing.events import PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.groups import BroadcastGroups
from geomq.routing.messages import Message
from geomq.routing.model import BrokerId, Edition
from geomq.routing.plan import EventBatch

log = logging.getLogger("geomq.cloud")

RETRY_S = (0.1, 3.0)
GRACE_S = 3.5
"""How long others have to come back to a cloud that forgot everybody: longer than the longest pause."""
STABLE_S = 10.0
"""A connection that lived this long was a good one: the next pause is short again."""
CONNECT_S_MAX = 10.0
PROBE_S = 3.0
SILENCE_S_MAX = 10.0
KEEP_ALIVE_S = 15
UNSENT_BYTES_MAX = 1 << 20
GEO_BYTES_MAX = 1 << 18
"""Room in a packet for ids and geo-context beside what a client may publish."""
SECRET_BYTES_MAX = 65_535
KEY_BYTES_MIN = 16


class CloudSettings(NamedTuple):
    """How to reach the cloud and who to be there."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    connect: Connect
    packet_bytes_max: int


class CloudChannel(asyncio.Protocol):
    """One connection to the cloud; `ended` gets the reason when it is over."""

    def __init__(self, link: "CloudLink", connect: Connect, size_max: int) -> None:
        self.taken = False
        self.heard_s = 0.0
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._link = link
        self._connect = connect
        self._decoder = Decoder(Side.CLIENT, version=V5, size_max=size_max)
        self._transport: asyncio.Transport | None = None
        self._reason = "connection lost"
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = writer = cast(asyncio.Transport, transport)
        writer.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        writer.write(encode(self._connect, V5))

    def data_received(self, data: bytes) -> None:
        self.heard_s = asyncio.get_running_loop().time()
        try:
            if not self.taken and data[:2] == b"\x20\x02":
                raise ProtocolError("it speaks only MQTT 3.1.1; broadcast groups need an MQTT 5 broker as cloud")
            for packet in self._decoder.feed(data):
                if self.taken:
                    self._link.heard(self, packet)
                elif not isinstance(packet, Connack):
                    raise ProtocolError(f"{packet.type.name} before CONNACK")
                elif packet.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                    raise ProtocolError("it does not speak MQTT 5, which broadcast groups need")
                elif packet.reason != ReasonCode.SUCCESS:
                    raise ProtocolError(f"it refuses us: {packet.reason.name.lower().replace('_', ' ')}")
                else:
                    self.taken = True
                    self._link.opened(self, packet)
        except ProtocolError as error:
            self.close(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.ended.done():
            self.ended.set_result(self._reason)

    def pause_writing(self) -> None:
        self._link.session.paused = True

    def resume_writing(self) -> None:
        self._link.resume()

    def send(self, data: bytes) -> None:
        """Write with whatever else is sent in this turn of the loop, unless the connection is over."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._write)
        self._unsent.append(data)

    def _write(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self, reason: str, *, politely: bool = False) -> None:
        """End the connection; `reason` is what the log says."""
        self._reason = reason
        if self._transport is not None:
            if politely:
                self._write()
                self._transport.close()
            else:
                self._transport.abort()


class CloudLink:
    """The link of one broker to the cloud, from start to stop."""

    def __init__(
        self,
        settings: CloudSettings,
        session: CloudSession,
        *,
        cloud: BrokerId,
        handle: Callable[[RoutingEvent], object],
        hold: Callable[[Any, bytes], None],
        uniform: Callable[[float, float], float] = SYSTEM.uniform,
    ) -> None:
        self.session = session
        self._settings = settings
        self.name = self._cloud = cloud
        self._handle = handle
        self._hold = hold
        self._uniform = uniform
        self._channel: CloudChannel | None = None
        self._task: asyncio.Task[None] | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._flushing = False
        self._said = ""

    @property
    def up(self) -> bool:
        return self.session.up

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle(PeerDown(self._cloud))
        self._task = self._loop.create_task(self._keep_connected())

    async def stop(self) -> None:
        """Say goodbye. A broker that will remember nothing asks the cloud to forget it too."""
        if self._task is not None:
            self._task.cancel()
        if self._probe is not None:
            self._probe.cancel()
        if self._channel is not None:
            channel, self._channel = self._channel, None
            self.session.disconnected()
            expiry_s = None if self.session.kept.durable else 0
            channel.send(encode(Disconnect(properties=Properties(session_expiry_interval=expiry_s)), V5))
            channel.close("this broker stops", politely=True)

    def send(self, message: Message) -> None:
        """Say a message of the strategy to the cloud, now or when it is there."""
        self.session.say(message)
        self._flush_soon()

    async def _keep_connected(self) -> None:
        pause_s = RETRY_S[0]
        while True:
            began_s = self._loop.time()
            reason = await self._connection()
            if self._channel is not None:
                self._channel = None
                self.session.disconnected()
                log.warning("cloud gone", extra={"cloud": self._cloud, "reason": reason})
                self._handle(PeerDown(self._cloud))
            elif reason != self._said:
                log.warning("cloud not reached", extra={"cloud": self._cloud, "reason": reason})
            self._said = reason
            if self._loop.time() - began_s > STABLE_S:
                pause_s = RETRY_S[0]
            await asyncio.sleep(pause_s * self._uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, RETRY_S[1])

    async def _connection(self) -> str:
        """Connect, and return why the connection ended or never came about."""
        settings = self._settings
        connect = msgspec.structs.replace(settings.connect, clean_start=not self.session.resumable)
        channel = CloudChannel(self, connect, settings.packet_bytes_max)
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                await self._loop.create_connection(lambda: channel, settings.host, settings.port, ssl=settings.tls)
        except TimeoutError:
            return f"no connection within {CONNECT_S_MAX:g} s"
        except (OSError, UnicodeError) as error:
            return str(error) or type(error).__name__
        timer = self._loop.call_later(CONNECT_S_MAX, self._check_taken, channel)
        try:
            reason = await channel.ended
        except asyncio.CancelledError:
            channel.close("this broker stops", politely=True)
            raise
        finally:
            timer.cancel()
        if not channel.taken and reason == "connection lost":
            return "it closed the connection on CONNECT; does it speak MQTT 5?"
        return reason

    def _check_taken(self, channel: CloudChannel) -> None:
        if not channel.taken:
            channel.close("no CONNACK in time")

    # What the channel says.

    def opened(self, channel: CloudChannel, connack: Connack) -> None:
        log.info("cloud there", extra={"cloud": self._cloud, "session": connack.session_present})
        self._channel = channel
        self._said = ""
        if not self.session.connected(connack):
            self._loop.call_later(GRACE_S, self._let_events_go, channel)
        self._flush_soon()
        self._watch(channel)
        self._handle(PeerUp(self._cloud))
        self.session.drop_unclaimed()

    def _let_events_go(self, channel: CloudChannel) -> None:
        if channel is self._channel:
            self.session.let_events_go()
            self._flush_soon()

    def heard(self, channel: CloudChannel, packet: Any) -> None:
        if channel is not self._channel:
            return
        heard = self.session.receive(packet)
        for message in heard.messages:
            self._handle(PeerSaid(self._cloud, message))
        if heard.answer:
            self._hold(channel, heard.answer)
        self._flush_soon()

    def resume(self) -> None:
        self.session.resume()
        self._flush_soon()

    def _watch(self, channel: CloudChannel) -> None:
        """Ask again and again whether the cloud is there; one that does not answer is gone."""
        if channel is not self._channel:
            return
        if self._loop.time() - channel.heard_s > SILENCE_S_MAX:
            channel.close("the cloud fell silent")
            return
        self.session.ping()
        self._flush_soon()
        self._probe = self._loop.call_later(PROBE_S, self._watch, channel)

    def _flush_soon(self) -> None:
        if not self._flushing and self._channel is not None:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """What was said in one turn of the loop leaves in one write."""
        self._flushing = False
        if self._channel is not None:
            self._channel.send(self.session.take_bytes())


class CloudAndPeers:
    """Messages to the cloud go to its link, all others to the peers' links."""

    def __init__(self, cloud: BrokerId, link: CloudLink, peers: Links | None) -> None:
        self._cloud = cloud
        self._link = link
        self._peers = peers

    def send(self, peer: BrokerId, message: Message) -> None:
        if peer == self._cloud:
            self._link.send(message)
        elif self._peers is not None:
            self._peers.send(peer, message)

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        if self._peers is not None:
            self._peers.send_batch(peer, batch, edition)


def start_cloud(
    core: Core,
    strategy: BroadcastGroups,
    handle: Callable[[RoutingEvent], object],
    *,
    peers: PeerStore | None,
    notes: Notes,
    starts: int,
) -> CloudLink:
    """Link a broker to the cloud of its strategy; ConfigError if the config names none.

    `peers` and `notes` are what the broker keeps on disk of its links, `starts` is its start count.
    """
    config, cloud = core.config, strategy.cloud
    if config.cloud.address is None:
        raise ConfigError("[cloud] address is needed for broadcast groups: it is how they reach each other")
    reader = CloudReader(
        me=core.node.me,
        cloud=cloud,
        epoch=int(core.wall_s() * 1000),
        leaders_topic=strategy.options.leaders_topic,
        fence_of=lambda text: core.fence_texts[text],
        is_ours=lambda broker: broker in core.node.strategy.federation.position,
        key=None if config.cloud.key_file is None else _secret(config.cloud.key_file, KEY_BYTES_MIN),
    )
    session = CloudSession(
        reader,
        events_max=config.cloud.queue_messages_max,
        bytes_max=config.cloud.queue_bytes_max,
        complain=lambda what: log.warning(what, extra={"cloud": cloud}),
        kept=None if peers is None else CloudKept(cloud, peers, core.store, notes=notes, schedule=core.outbox.schedule),
        life=starts,
    )
    settings = cloud_settings(config.cloud, config.broker.name, config.limits.packet_bytes_max + GEO_BYTES_MAX)
    link = CloudLink(
        settings, session, cloud=cloud, handle=handle, hold=core.outbox.hold, uniform=core.platform.uniform
    )
    link.start()
    return link


def cloud_settings(section: Cloud, name: str, packet_bytes_max: int) -> CloudSettings:
    """Read what the config says about the cloud; ConfigError in one line if that cannot be."""
    assert section.address is not None
    host, _, port = section.address.rpartition(":")
    connect = Connect(
        section.client_id or f"geomq-{name}",
        keep_alive=KEEP_ALIVE_S,
        username=section.username,
        password=None if section.password_file is None else _secret(section.password_file, 1),
        properties=Properties(
            session_expiry_interval=section.session_expiry_s,
            maximum_packet_size=packet_bytes_max,
        ),
    )
    return CloudSettings(host.strip("[]"), int(port), _tls(section), connect, packet_bytes_max)


def _secret(path: str, bytes_min: int) -> bytes:
    """The one line of a file that holds a password or a key."""
    try:
        with Path(path).open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).strip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    if not bytes_min <= len(secret) <= SECRET_BYTES_MAX:
        raise ConfigError(f"{path}: one line of at least {bytes_min} bytes is wanted")
    return secret


def _tls(section: Cloud) -> ssl.SSLContext | None:
    if not section.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=section.cafile)
        if section.certfile is not None:
            context.load_cert_chain(section.certfile, section.keyfile)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[cloud] certificate: {error}") from None
    return context
