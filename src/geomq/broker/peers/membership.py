"""The federation of a running broker: what is kept of it, who is linked, who may join, how it is changed.

The routing core decides what happens when; here its decisions meet the disk, the links and the people in charge.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from geomq.broker.cloud.link import CloudAndPeers, CloudLink, start_cloud
from geomq.broker.config.settings import Config
from geomq.broker.core import Core
from geomq.broker.peers.federating import address_of, credentials_of, description_of, entry_of, peers_of, tls_of
from geomq.broker.peers.federation_diff import area_moves
from geomq.broker.peers.peering import PeerAddress, Peering
from geomq.broker.peers.seeking import Seeker
from geomq.broker.peers.store import Notes, PeerStore
from geomq.errors import ConfigError, GeomqError
from geomq.routing.core.events import PeerDown, RoutingEvent
from geomq.routing.core.model import CONFIGURED, BrokerId, Edition
from geomq.routing.federation.changes import AddBroker, Change, SetStrategy
from geomq.routing.federation.description import BrokerEntry, Description, decode_description, encode_description
from geomq.routing.federation.edition_messages import Phase
from geomq.routing.federation.editions import ChangeAsked, DescriptionLearned, Kept
from geomq.routing.federation.live_editions import EDITIONS_MAX
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.registry import strategy_class
from geomq.routing.wire.frames import Aside, Described, NotJoined

log = logging.getLogger("geomq.peers")

_ENTRY = msgspec.msgpack.Decoder(BrokerEntry)


class EditionView(msgspec.Struct, frozen=True):
    number: int
    origin: str


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


class MovedView(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    from_: str | None
    to: str | None
    km2: float


class ChangeView(msgspec.Struct, frozen=True):
    """What a change did, or would do."""

    dry_run: bool
    changed: bool
    edition: EditionView
    strategy: str
    brokers: list[str]
    moves: list[MovedView]
    clients_outside: int


class Membership:
    """Keeps one broker where its federation's description says it belongs."""

    def __init__(
        self,
        core: Core,
        handle: Callable[[RoutingEvent], object],
        *,
        config: Config,
        kept: PeerStore | None,
        notes: Notes,
        starts: int,
    ) -> None:
        self._core = core
        self._node = core.node
        self._editions = core.node.editions
        self._handle = handle
        self._config = config
        self._kept = kept
        self._notes = notes
        self._starts = starts
        self._seeker: Seeker | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self.peering: Peering | None = None
        self.cloud: CloudLink | None = None
        core.driver.keep_editions = self._keep

    @property
    def addresses(self) -> dict[BrokerId, PeerAddress | None]:
        """Everybody this broker holds a link to, and where they are dialled."""
        found: dict[BrokerId, PeerAddress | None] = {}
        for description in self._editions.descriptions.values():
            if self._node.me in description.names:
                found |= peers_of(description, self._node.me)
        return found

    def link(self) -> None:
        """Messages go where the links lead; a broker without peers has none."""
        peers = self.peering if self._editions.peers else None
        if self.cloud is not None:
            self._core.driver.links = CloudAndPeers(self.cloud.name, self.cloud, peers)
        else:
            self._core.driver.links = peers
        self._core.topology_changed()

    def start(self) -> None:
        """After a start: catch up with the config, and look for the seed."""
        self._mind_cloud(at_start=True)
        self.link()
        configured = description_of(self._config)
        if configured.edition > self._editions.edition and configured.edition != CONFIGURED:
            self._core.driver.handle(DescriptionLearned(configured))
        elif self._editions.edition != CONFIGURED:
            log.info(
                "federation description restored, as changed at run time",
                extra={"edition": str(self._editions.edition)},
            )
        seed = self._config.federation.seed
        belongs = self._editions.edition.number and self._node.me in self._editions.description.names
        if seed is not None and not belongs:
            host, _, port = seed.rpartition(":")
            self._seeker = Seeker(
                PeerAddress(host.strip("[]"), int(port)),
                entry_of(self._config),
                credentials_of(self._config, self._core.platform),
                dial_tls=tls_of(self._config)[1],
                found=self._found,
                uniform=self._core.platform.uniform,
            )
            self._seeker.start()

    async def stop(self) -> None:
        if self._seeker is not None:
            self._seeker.stop()
        if self.cloud is not None:
            await self.cloud.stop()
        if self._stopping:
            await asyncio.wait(self._stopping)

    # What the core decided.

    def _keep(self, kept: Kept) -> None:
        addresses = self.addresses
        if self._kept is not None:
            self._kept.keep_editions(kept)
            self._kept.forget_others(self._editions.keys, addresses)
        if self.peering is not None:
            self.peering.set_peers(addresses)
        self._mind_cloud(at_start=False)
        self.link()

    def _mind_cloud(self, *, at_start: bool) -> None:
        """A cloud is linked as long as a live routing has one."""
        groups = [strategy for strategy in self._node.routings.strategies if isinstance(strategy, BroadcastGroups)]
        if groups and self.cloud is None:
            try:
                self.cloud = start_cloud(
                    self._core, groups[-1], self._handle, peers=self._kept, notes=self._notes, starts=self._starts
                )
            except ConfigError as error:
                if at_start:
                    raise
                self._editions.problem = str(error)
                self._handle(PeerDown(groups[-1].cloud))
            else:
                self._editions.problem = ""
        elif self.cloud is not None and not groups:
            stopping = asyncio.get_running_loop().create_task(self.cloud.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            self.cloud, self._notes = None, {}

    # Strangers.

    def asked_to_join(self, name: BrokerId, entry: bytes) -> Aside:
        """A broker that proved its name wants to join."""
        try:
            self._admit(name, _ENTRY.decode(entry))
        except (GeomqError, msgspec.MsgspecError) as error:
            log.warning("refused a broker that asked to join", extra={"peer": name, "reason": str(error)})
            return NotJoined(str(error)[:500])
        return Described(encode_description(self._editions.description))

    def _admit(self, name: BrokerId, entry: BrokerEntry) -> None:
        if not self._config.federation.admit:
            raise ConfigError("this broker admits no new brokers; add the broker through the admin API")
        if entry.name != name:
            raise ConfigError(f"broker {name} cannot join as {entry.name}")
        if self._node.me not in self._editions.description.names:
            raise ConfigError("this broker itself is no longer part of the federation")
        if self._editions.description.entry(name) != entry:
            self.change(AddBroker(entry, replace=True))
            log.info("broker joined", extra={"peer": name})

    def unknown(self, name: BrokerId) -> Aside | None:
        if self._editions.edition == CONFIGURED:
            return None
        return Described(encode_description(self._editions.description))

    def described(self, peer: BrokerId, description: bytes) -> None:
        self._found(description)

    def _found(self, data: bytes) -> bool:
        """A description came; whether this broker is part of it."""
        try:
            description = decode_description(data)
            self._core.driver.handle(DescriptionLearned(description))
        except ConfigError as error:
            log.warning("refused a federation description", extra={"reason": str(error)})
            return False
        return self._node.me in self._editions.description.names

    # People in charge.

    def change(self, change: Change, *, dry_run: bool = False) -> ChangeView:
        """Change the federation; ConfigError in one line if that cannot be."""
        node, before = self._node, self._editions.description
        if node.me not in before.names:
            raise ConfigError("this broker is no longer part of the federation")
        after, federation = self._editions.preview(change)
        self._check_here(change, after)
        moves = area_moves(node.strategy.federation, federation) if after.names else []
        outside = sum(
            1
            for state in node.clients.values()
            if state.location is not None and federation.owner(state.location) != node.me
        )
        if not dry_run and after.edition != before.edition:
            self._core.driver.handle(ChangeAsked(change))
            log.info("federation changed", extra={"edition": str(after.edition)})
        return ChangeView(
            dry_run=dry_run,
            changed=after.edition != before.edition,
            edition=EditionView(*after.edition),
            strategy=after.strategy,
            brokers=list(after.names),
            moves=[MovedView(*move) for move in moves],
            clients_outside=outside,
        )

    def _check_here(self, change: Change, after: Description) -> None:
        if len(self._editions.descriptions) > EDITIONS_MAX // 2:
            waiting = ", ".join(self._editions.waiting_for()) or "nobody"
            raise ConfigError(f"too many changes in progress; the last ones still wait for {waiting}")
        groups = issubclass(strategy_class(after.strategy), BroadcastGroups)
        if isinstance(change, SetStrategy) and groups and self._config.cloud.address is None:
            raise ConfigError("[cloud] address is needed for broadcast groups, at every broker")

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
            connected=name == me or (self.peering is not None and name in self.peering.connected),
            latency_ms=None if self.peering is None else self.peering.latency_ms(name),
            reached=reached,
        )

    def _under_way(self, edition: Edition) -> UnderWayView:
        editions = self._editions
        said = {peer: editions.reached(peer) for peer in editions.peers}
        problems = {str(peer): news.problem for peer, news in said.items() if news is not None and news.problem}
        if editions.problem:
            problems[str(self._node.me)] = editions.problem
        return UnderWayView(EditionView(*edition), editions.phase.name.lower(), list(editions.waiting_for()), problems)


def _phase_name(phase: int) -> str | None:
    return Phase(phase).name.lower() if phase in tuple(Phase) else None
