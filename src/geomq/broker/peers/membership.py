"""The federation of a running broker: what is kept of it, and who is linked.

The routing core decides what happens when; here its decisions meet the disk and the links.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import msgspec

from geomq.broker.config.settings import Config
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.peers.changes import EditionView, FederationChanges
from geomq.broker.peers.federating import address_of, description_of, entry_of, peers_of
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.peers.peering import Peering
from geomq.broker.peers.refusals import PeerRefusals
from geomq.broker.peers.seeking import Seeker
from geomq.broker.peers.store import PeerStore
from geomq.broker.state.links import Cloud, CloudAndPeers
from geomq.errors import ConfigError
from geomq.routing.core.events import PeerDown
from geomq.routing.core.model import CONFIGURED, BrokerId, Edition
from geomq.routing.federation.description import BrokerEntry
from geomq.routing.federation.edition_messages import Phase
from geomq.routing.federation.editions import DescriptionLearned, Kept
from geomq.routing.node import Node
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.wire.frames import NameTaken

log = logging.getLogger("geomq.peers")


class MemberView(msgspec.Struct, frozen=True):
    """A broker of the federation, as this one sees it."""

    name: str
    address: str | None
    location: tuple[float, float] | None
    area: str | None
    connected: bool
    latency_ms: float | None
    reached: str | None


class UnderWayView(msgspec.Struct, frozen=True):
    """A change that not all brokers have followed yet."""

    edition: EditionView
    phase: str
    waiting_for: list[str]
    problems: dict[str, str]


class FederationView(msgspec.Struct, frozen=True):
    me: str
    edition: EditionView
    strategy: str
    options: dict[str, Any]
    areas: dict[str, Any]
    brokers: list[MemberView]
    change: UnderWayView | None


class Membership:
    """Keeps one broker where its federation's description says it belongs."""

    def __init__(
        self,
        core: Core,
        driver: Driver,
        changes: FederationChanges,
        *,
        config: Config,
        kept: PeerStore | None,
        peering: Peering | None,
        dial_tls: Callable[[], ssl.SSLContext | None],
        refusals: PeerRefusals,
        start_cloud: Callable[[BroadcastGroups], Cloud],
    ) -> None:
        self.change = changes.change
        self._core = core
        self._node = core.node
        self._editions = core.node.editions
        self._handle = driver.handle
        self._changes = changes
        self._config = config
        self._kept = kept
        self._peering = peering
        self._dial_tls = dial_tls
        self._refusals = refusals
        self._start_cloud = start_cloud
        self._seeker: Seeker | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self.cloud: Cloud | None = None

    @property
    def addresses(self) -> dict[BrokerId, PeerAddress | None]:
        """Everybody this broker holds a link to, and where they are dialled."""
        return addresses_of(self._node)

    def link(self) -> None:
        """Messages go where the links lead; a broker without peers has none."""
        peers = self._peering if self._editions.peers else None
        self._core.links.lead(peers if self.cloud is None else CloudAndPeers(self.cloud, peers))
        self._core.topology_changed()

    def start(self) -> None:
        """After a start: catch up with the config, and look for the seed."""
        self._mind_cloud(at_start=True)
        self.link()
        configured = description_of(self._config)
        if configured.edition > self._editions.edition and configured.edition != CONFIGURED:
            self._handle(DescriptionLearned(configured))
        elif self._editions.edition != CONFIGURED:
            log.info(
                "federation description restored, as changed at run time",
                extra={"edition": str(self._editions.edition)},
            )
        seed = self._config.federation.seed
        belongs = self._editions.edition.number and self._node.me in self._editions.description.names
        if seed is not None and not belongs and self._peering is not None:
            host, _, port = seed.rpartition(":")
            self._seeker = Seeker(
                PeerAddress(host.strip("[]"), int(port)),
                entry_of(self._config),
                self._peering.credentials,
                dial_tls=self._dial_tls,
                found=self._changes.learn,
                name_taken=self._name_taken,
                uniform=self._core.platform.uniform,
            )
            self._seeker.start()

    def _name_taken(self, seed: str, frame: NameTaken) -> None:
        self._refusals.name_taken(self._node.me, by=seed, mine=frame.refused, linked=frame.linked)

    async def stop(self) -> None:
        if self._seeker is not None:
            self._seeker.stop()
        if self.cloud is not None:
            await self.cloud.stop()
        if self._stopping:
            await asyncio.wait(self._stopping)

    # What the core decided.

    def keep(self, kept: Kept) -> None:
        """The federation changed: keep it on disk, and link who belongs to it now."""
        addresses = self.addresses
        if self._kept is not None:
            self._kept.keep_editions(kept)
            self._kept.forget_others(self._editions.keys, addresses)
        if self._peering is not None:
            self._peering.set_peers(addresses)
        self._mind_cloud(at_start=False)
        self.link()

    def _mind_cloud(self, *, at_start: bool) -> None:
        """A cloud is linked as long as a live routing has one."""
        groups = [strategy for strategy in self._node.routings.strategies if isinstance(strategy, BroadcastGroups)]
        if groups and self.cloud is None:
            try:
                self.cloud = self._start_cloud(groups[-1])
            except ConfigError as error:
                if at_start:
                    raise
                self._editions.report(str(error))
                self._handle(PeerDown(groups[-1].cloud))
            else:
                self._editions.report("")
        elif self.cloud is not None and not groups:
            stopping = asyncio.get_running_loop().create_task(self.cloud.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            self.cloud = None

    # People in charge.

    def status(self) -> FederationView:
        description = self._editions.description
        areas: dict[str, Any] = {"kind": description.areas_kind}
        if description.grid_deg is not None:
            areas["grid_deg"] = description.grid_deg
        return FederationView(
            me=self._node.me,
            edition=EditionView(*description.edition),
            strategy=description.strategy,
            options=description.options,
            areas=areas,
            brokers=[self._member(entry) for entry in description.brokers],
            change=self._under_way(description.edition) if self._editions.changing else None,
        )

    def _member(self, entry: BrokerEntry) -> MemberView:
        name, me = BrokerId(entry.name), self._node.me
        if name == me:
            reached: str | None = self._editions.phase.name.lower()
        else:
            said = self._editions.reached(name)
            reached = None if said is None else _phase_name(said.phase)
        return MemberView(
            name=name,
            address=None if (at := address_of(entry)) is None else f"{at.host}:{at.port}",
            location=entry.location,
            area=entry.area,
            connected=name == me or (self._peering is not None and name in self._peering.connected),
            latency_ms=None if self._peering is None else self._peering.latency_ms(name),
            reached=reached,
        )

    def _under_way(self, edition: Edition) -> UnderWayView:
        editions = self._editions
        said = {peer: editions.reached(peer) for peer in editions.peers}
        problems = {str(peer): news.problem for peer, news in said.items() if news is not None and news.problem}
        if editions.problem:
            problems[str(self._node.me)] = editions.problem
        return UnderWayView(EditionView(*edition), editions.phase.name.lower(), list(editions.waiting_for()), problems)


def addresses_of(node: Node) -> dict[BrokerId, PeerAddress | None]:
    """Everybody that a broker holds a link to, and where they are dialled."""
    found: dict[BrokerId, PeerAddress | None] = {}
    for description in node.editions.descriptions.values():
        if node.me in description.names:
            found |= peers_of(description, node.me)
    return found


def _phase_name(phase: int) -> str | None:
    return Phase(phase).name.lower() if phase in tuple(Phase) else None
