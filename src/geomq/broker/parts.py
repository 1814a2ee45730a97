"""What a broker consists of, built here and nowhere else: each part is given all it needs by its constructor.

Where two parts need each other, one of them is given a method of `Parts`, which knows both.
"""

import asyncio

from geomq.broker.clients.delivery import Delivery
from geomq.broker.clients.fenced import FencedFilters
from geomq.broker.clients.following import Following
from geomq.broker.clients.geocontext import GeoContext
from geomq.broker.clients.once import NOTE as WRITERS
from geomq.broker.clients.publishing import Publishing
from geomq.broker.clients.registry import Registry
from geomq.broker.clients.retention import Retention
from geomq.broker.clients.subscribing import Subscribing
from geomq.broker.cloud.link import CloudLink, start_cloud
from geomq.broker.config.settings import Config
from geomq.broker.connections.admission import Admission
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.fastpath.arrivals import FastArrivals
from geomq.broker.fastpath.publishing import FastPath
from geomq.broker.fastpath.qos1 import FastQos1
from geomq.broker.fastpath.qos1_arrivals import Qos1Arrivals
from geomq.broker.packet_handlers import PacketHandlers
from geomq.broker.peers.changes import FederationChanges
from geomq.broker.peers.federating import LinkTls, credentials_of
from geomq.broker.peers.membership import Membership, addresses_of
from geomq.broker.peers.peer_settings import PeerLimits
from geomq.broker.peers.peering import Peering
from geomq.broker.peers.refusals import PeerRefusals
from geomq.broker.peers.retained_copies import RetainedCopies
from geomq.broker.peers.rights import PeerRights
from geomq.broker.peers.store import Notes, PeerStore
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.roaming.roaming import Roaming
from geomq.broker.security.access import Security
from geomq.broker.state.client import Client
from geomq.broker.state.drops import Reason
from geomq.broker.state.steady import NOTE as CLOCK
from geomq.broker.state.steady import SteadyClock
from geomq.broker.state.turns import Turns
from geomq.broker.storage.committer import Committer
from geomq.broker.storage.outbox import Outbox
from geomq.broker.storage.records import StoredState
from geomq.broker.storage.store import Store
from geomq.routing.core.actions import SessionAction
from geomq.routing.core.events import RetainedExpired
from geomq.routing.core.messages import Message, is_promised
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.editions import Kept
from geomq.routing.node import Node
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.wire.carried import events_in, topic_of
from geomq.routing.wire.link import Link, WhenFull


class Parts:
    """The parts of one broker. `notes` are what the store remembered of its links."""

    def __init__(
        self,
        config: Config,
        *,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        store: Store,
        security: Security,
        committer: Committer | None = None,
        notes: Notes | None = None,
        platform: Platform = SYSTEM,
    ) -> None:
        self._config = config
        self._notes = self._cloud_notes = notes or {}
        turns = Turns(loop, platform.turn_ns)
        outbox = Outbox(loop, store, committer, before_write=self._before_write, turns=turns)
        core = self.core = Core(
            config,
            loop=loop,
            node=node,
            store=store,
            outbox=outbox,
            security=security,
            topology_changed=self._topology_changed,
            turns=turns,
            now_s=self._make_clock(loop, platform),
            platform=platform,
        )
        self.following, fenced = Following(core), FencedFilters()
        self.fast = FastPath(core, self.following, fenced)
        self.delivery = Delivery(core, self.fast.drain)
        self.kept = None if committer is None else PeerStore(store, committer, strategy=config.routing.strategy)
        if self.kept is not None:
            self.kept.before_writing(self.fast.send_to_peers)
        self.qos1 = FastQos1(core, self.delivery, self.fast, self.kept)
        self.arrivals = FastArrivals(core, self.fast, Qos1Arrivals(core, self.fast, self.qos1, self.kept))
        self.retention = Retention(core, self.delivery)
        self.retained = RetainedCopies(core, self.retention)
        self.driver = self._make_driver()
        self.geo = GeoContext(core, self.driver, self.delivery, self.retention, moved=self._client_moved)
        self.publishing = Publishing(
            core, self.driver, self.geo, self.retention, self.following, send_qos1=self.qos1.send
        )
        subscribing = Subscribing(core, self.driver, self.retention, fenced)
        self.registry = Registry(core, self.driver, self.publishing, subscribing)
        changes = FederationChanges(core, self.driver, config)
        self.link_tls = LinkTls(config)
        self._refusals = PeerRefusals(core.counts, core.node, now_s=loop.time)
        self.peering, self.roaming = self._with_peers(changes)
        self.membership = self._make_membership(changes)
        self.admission = Admission(core, self.registry, self.geo, self.roaming)
        self.handlers = self._make_handlers(subscribing)

    def _make_handlers(self, subscribing: Subscribing) -> PacketHandlers:
        return PacketHandlers(
            self.core,
            delivery=self.delivery,
            publishing=self.publishing,
            subscribing=subscribing,
            registry=self.registry,
            admission=self.admission,
            fast=self.fast,
            qos1=self.qos1,
        )

    def _make_clock(self, loop: asyncio.AbstractEventLoop, platform: Platform) -> SteadyClock:
        away_s_max = self._config.persistence.away_s_max
        return SteadyClock(loop.time, platform.wall_s, self._notes.get(CLOCK, {}), away_s_max=away_s_max)

    def _make_driver(self) -> Driver:
        return Driver(
            self.core,
            deliverer=self.delivery,
            arrivals=self.arrivals,
            retained=self.retained,
            rights=PeerRights(self.core),
            move_session=self._move_session,
            kept=self.kept,
            keep_editions=self._keep_editions,
            before_sending=self.fast.drain,
        )

    def _with_peers(self, changes: FederationChanges) -> tuple[Peering | None, Roaming | None]:
        """What a broker has that is part of a federation, or may become one."""
        core, section = self.core, self._config.federation
        addresses = addresses_of(core.node)
        if not addresses and section.port is None and section.seed is None:
            return None, None
        peering = Peering(
            me=core.node.me,
            peers=addresses,
            handle=self.driver.handle,
            credentials=credentials_of(self._config, core.platform),
            platform=core.platform,
            kept=self.kept,
            notes=self._notes,
            limits=PeerLimits(
                outbox_max=self._config.queues.peer_messages_max, outbox_bytes_max=self._config.queues.peer_bytes_max
            ),
            on_full=self._link_full,
            may_go=self._may_go,
            dial_tls=lambda: self.link_tls.dial,
            refusals=self._refusals,
            lost=self._lost,
            now_s=core.now_s,
            unknown_broker_handler=changes,
        )
        return peering, Roaming(core, self.driver, self.registry)

    def _make_membership(self, changes: FederationChanges) -> Membership:
        return Membership(
            self.core,
            self.driver,
            changes,
            config=self._config,
            kept=self.kept,
            peering=self.peering,
            dial_tls=lambda: self.link_tls.dial,
            refusals=self._refusals,
            start_cloud=self._start_cloud,
        )

    def load(self, state: StoredState) -> None:
        """Take in what the store remembered."""
        self.retention.load(state.retained)
        self.registry.load(state.sessions)
        self.publishing.writers.load(self._notes.get(WRITERS, {}))
        if self.kept is not None:
            self.kept.restore(self.core.node, self._notes, now=self.core.now_ms())
        if self.roaming is not None:
            self.retained.load(self._notes)
            self.roaming.load(self._notes)

    async def start(self) -> None:
        """Link this broker with others."""
        if self.peering is not None:
            section = self._config.federation
            host = None if section.host == "*" else section.host
            await self.peering.start(host, section.port, lambda: self.link_tls.listen)
        self.membership.start()

    def note_time(self, *, finally_: bool = False) -> None:
        """Now and then, and in the end: have on disk what the clock shows."""
        note = self.core.now_s.note(finally_=finally_)
        if note is not None:
            self.core.store.put_note(CLOCK, b"", note)
            self.core.outbox.schedule()

    def sweep(self) -> None:
        """Every second or so: end what has been silent or has lived for too long."""
        self.note_time()
        self.handlers.check_alive()
        self.registry.sweep()
        self.core.drops.report()
        self._expire_retained()
        if self.roaming is not None:
            self.roaming.redirecting.sweep()

    def _expire_retained(self) -> None:
        topics = self.retention.expire()
        if topics and self.core.node.retained.active:
            self.driver.handle(RetainedExpired(topics))
        if topics:
            self.core.turns.wait(self._expire_retained)

    def take_link_certificates(self) -> None:
        """Read the files about brokers' certificates again; links with those that are no longer good end. ConfigError
        changes nothing."""
        before = self.link_tls.trust
        self.link_tls.renew(self._config)
        if self.peering is not None:
            self.peering.end_untrusted(lambda certificate: self.link_tls.trust.refusal(certificate, before))

    def take_config(self, config: Config, security: Security) -> None:
        """Go on under changed settings."""
        before = self.core.security
        self.core.take_config(config, security)
        self.retention.take_limits(config.limits)
        self.following.forget_topics()
        for client in self.core.clients.values():
            self.registry.give_rights(client)
        self.admission.revoke(tuple(self.handlers.connections), before)
        self.handlers.take_limits()
        self._topology_changed()

    # Between parts that need each other.

    def _before_write(self) -> None:
        self.fast.write()

    def _topology_changed(self) -> None:
        self.fast.forget()
        self.qos1.forget()

    def _keep_editions(self, kept: Kept) -> None:
        self.membership.keep(kept)

    def _client_moved(self, client: Client) -> None:
        if self.roaming is not None:
            self.roaming.redirecting.look_at(client)

    def _move_session(self, action: SessionAction) -> None:
        assert self.roaming is not None
        self.roaming.carry_out(action)

    def _lost(self, peer: BrokerId, message: Message, reason: Reason) -> None:
        """A message did not get to a peer; all but events are repeated when its link is up."""
        events = events_in(message)
        if events:
            self.core.drops.for_peer(peer, reason, events)
        if self.core.tracer is not None:
            self.core.tracer.lost(peer, message, reason.value.replace("_", " "))

    def _link_full(self, peer: BrokerId, link: Link, message: Message, size: int) -> WhenFull:
        """There is no room for an event in what waits for a peer."""
        topic = topic_of(message)
        return self.core.pressure.of_link(peer, link, topic or "", size, promised=is_promised(message))

    def _may_go(self, message: Message) -> bool:
        """Whether an event that waits for a peer may be given up for a newer one."""
        return self.core.pressure.may_go(topic_of(message), promised=is_promised(message))

    def _start_cloud(self, strategy: BroadcastGroups) -> CloudLink:
        notes, core = self._cloud_notes, self.core
        link = start_cloud(core, strategy, self.driver.handle, peers=self.kept, notes=notes)
        self._cloud_notes = {}
        return link
