"""The link to the cloud of broadcast groups: who to be there, and what the strategy and the log learn of it.

The cloud is any MQTT 5 broker. One that speaks only MQTT 3.1.1 is refused: it could carry neither event ids nor
geo-context, and echoes could only be guessed from payloads. What is sent on the connection is `cloud_session`'s.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from geomq.broker.cloud.codec import CloudReader
from geomq.broker.cloud.kept import CloudKept
from geomq.broker.cloud.session import CloudSession
from geomq.broker.config.settings import Cloud
from geomq.broker.core import Core
from geomq.broker.peers.store import Notes, PeerStore
from geomq.broker.platform import SYSTEM
from geomq.errors import ConfigError
from geomq.mqtt.client.backoff import Backoff
from geomq.mqtt.client.events import Connected, ConnectRefused, Event, Repeated
from geomq.mqtt.codec.packets import Connect, Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.routing.core.events import PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.groups.messages import CloudAnnounce, CloudPublish
from geomq.transport.address import Address
from geomq.transport.channel import Channel
from geomq.transport.link import ClientLink, End

log = logging.getLogger("geomq.cloud")

RETRY_S = (0.1, 3.0)
GRACE_S = 3.5
"""How long others have to come back to a cloud that forgot everybody: longer than the longest pause."""
CONNECT_S_MAX = 10.0
LEAVE_S = 1.0
KEEP_ALIVE_S = 15
GEO_BYTES_MAX = 1 << 18
"""Room in a packet for ids and geo-context beside what a client may publish."""
SECRET_BYTES_MAX = 65_535
KEY_BYTES_MIN = 16


class CloudLink:
    """The link of one broker to the cloud, from start to stop."""

    def __init__(
        self,
        session: CloudSession,
        address: Address,
        *,
        cloud: BrokerId,
        handle: Callable[[RoutingEvent], object],
        hold: Callable[[Any, bytes], None],
        uniform: Callable[[float, float], float] = SYSTEM.uniform,
    ) -> None:
        self.session = session
        self.name = self._cloud = cloud
        self._handle = handle
        self._hold = hold
        self._link = ClientLink(
            session.mqtt,
            address,
            handle=self._on_event,
            again=self._again,
            backoff=Backoff(*RETRY_S),
            connect_s=CONNECT_S_MAX,
            leave_s=LEAVE_S,
            dice=lambda: uniform(0.0, 1.0),
        )
        self._task: asyncio.Task[End] | None = None
        self._connected = False
        """Whether the strategy was told that the cloud is there."""
        self._reason = ""
        """Why the cloud was not reached, when that was logged last."""

    @property
    def up(self) -> bool:
        return self.session.up

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle(PeerDown(self._cloud))
        self._task = self._loop.create_task(self._link.run())

    async def stop(self) -> None:
        """Disconnect. A broker that will remember nothing asks the cloud to forget it too."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._connected = False
        self.session.mqtt.disconnect(expiry_s=None if self.session.kept.durable else 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def send(self, message: Message) -> None:
        """Send a message of the strategy to the cloud, now or when it is there."""
        channel = self._link.channel
        if isinstance(message, CloudAnnounce) and channel is not None and channel.paused:
            return  # one that waits says nothing about now
        self.session.send(message)
        if isinstance(message, CloudPublish) and message.event.qos:
            self.session.kept.when_safe(self._link.flush)
        else:
            self._link.flush()

    def _again(self, end: End) -> bool:
        """A connection ended or never came about: log why, tell the strategy, and connect once more."""
        reason = end.reason
        if isinstance(end.said, ConnectRefused) and end.said.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
            reason = "it does not speak MQTT 5, only 3.1.1 or something else; broadcast groups need MQTT 5"
        elif end.said is None and end.contacted and not end.up:
            reason += "; does it speak MQTT 5?"
        if self._connected:
            self._connected = False
            self.session.disconnected()
            log.warning("cloud disconnected", extra={"cloud": self._cloud, "reason": reason})
            self._handle(PeerDown(self._cloud))
        elif reason != self._reason:
            log.warning("cloud connection failed", extra={"cloud": self._cloud, "reason": reason})
        self._reason = reason
        return self._task is not None

    # What the session reports.

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Connected):
            self._on_connected(event)
            return
        for message in self.session.receive(event):
            if self._connected:
                self._handle(PeerSaid(self._cloud, message))
        if isinstance(event, Publish | Repeated):
            answer = self.session.mqtt.acknowledge(event)
            if answer:
                self._hold(self._link.channel, answer)

    def _on_connected(self, event: Connected) -> None:
        log.info("cloud connected", extra={"cloud": self._cloud, "session": event.connack.session_present})
        self._connected = True
        self._reason = ""
        if not self.session.connected(event):
            self._loop.call_later(GRACE_S, self._let_events_go, self._link.channel)
        self._handle(PeerUp(self._cloud))
        self.session.drop_unclaimed()

    def _let_events_go(self, channel: Channel | None) -> None:
        if self._connected and channel is self._link.channel:
            self.session.let_events_go()
            self._link.flush()


def start_cloud(
    core: Core,
    strategy: BroadcastGroups,
    handle: Callable[[RoutingEvent], object],
    *,
    peers: PeerStore | None,
    notes: Notes,
) -> CloudLink:
    """Link a broker to the cloud of its strategy; ConfigError if the config names none.

    `peers` and `notes` are what the broker keeps on disk of its links.
    """
    config, cloud = core.config, strategy.cloud
    if config.cloud.address is None:
        raise ConfigError("broadcast groups need [cloud] address: they reach each other through the cloud broker")
    reader = CloudReader(
        me=core.node.me,
        cloud=cloud,
        epoch=core.platform.new_epoch(),
        leaders_topic=strategy.options.leaders_topic,
        fence_of=lambda text: core.fence_texts[text],
        is_ours=lambda broker: broker in core.node.strategy.federation.position,
        key=None if config.cloud.key_file is None else _secret(config.cloud.key_file, KEY_BYTES_MIN),
    )
    address, connect = cloud_settings(config.cloud, config.broker.name)
    session = CloudSession(
        reader,
        connect=connect,
        events_max=config.cloud.queue_messages_max,
        bytes_max=config.cloud.queue_bytes_max,
        packet_bytes_max=config.limits.packet_bytes_max + GEO_BYTES_MAX,
        clock=asyncio.get_running_loop().time,
        complain=lambda what: log.warning(what, extra={"cloud": cloud}),
        lost=partial(core.drops.for_cloud, cloud),
        kept=None if peers is None else CloudKept(cloud, peers, core.store, notes=notes, schedule=core.outbox.schedule),
    )
    link = CloudLink(session, address, cloud=cloud, handle=handle, hold=core.outbox.hold, uniform=core.platform.uniform)
    link.start()
    return link


def cloud_settings(section: Cloud, name: str) -> tuple[Address, Connect]:
    """How to reach the cloud and who to be there; ConfigError in one line if that cannot be."""
    assert section.address is not None
    host, _, port = section.address.rpartition(":")
    connect = Connect(
        section.client_id or f"geomq-{name}",
        keep_alive=KEEP_ALIVE_S,
        username=section.username,
        password=None if section.password_file is None else _secret(section.password_file, 1),
        properties=Properties(session_expiry_interval=section.session_expiry_s),
    )
    return Address(host.strip("[]"), int(port), _tls(section)), connect


def _secret(path: str, bytes_min: int) -> bytes:
    """The one line of a file that holds a password or a key."""
    try:
        with Path(path).open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).strip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    if not bytes_min <= len(secret) <= SECRET_BYTES_MAX:
        raise ConfigError(f"{path}: one line of at least {bytes_min} bytes is required")
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
