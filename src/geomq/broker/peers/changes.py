"""What changes the federation: people in charge, brokers that join, and descriptions that others have.

The routing core decides what happens when; here is decided what may happen at all.
"""

import logging

import msgspec

from geomq.broker.config.settings import Config
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.peers.federating import admits
from geomq.broker.peers.federation_diff import area_moves
from geomq.errors import UNREADABLE, ConfigError, GeomqError
from geomq.routing.core.model import CONFIGURED, BrokerId
from geomq.routing.federation.changes import AddBroker, Change, SetStrategy
from geomq.routing.federation.description import BrokerEntry, Description, decode_description, encode_description
from geomq.routing.federation.editions import ChangeAsked, DescriptionLearned
from geomq.routing.federation.live_editions import EDITIONS_MAX
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.registry import strategy_class
from geomq.routing.wire.frames import Aside, Described, NotJoined

log = logging.getLogger("geomq.peers")

_ENTRY = msgspec.msgpack.Decoder(BrokerEntry)


class EditionView(msgspec.Struct, frozen=True):
    number: int
    origin: str


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


class FederationChanges:
    """Checks changes of one broker's federation and hands them to the routing node."""

    def __init__(self, core: Core, driver: Driver, config: Config) -> None:
        self._core = core
        self._node = core.node
        self._editions = core.node.editions
        self._handle = driver.handle
        self._config = config

    # Brokers that are not peers.

    def asked_to_join(self, name: BrokerId, entry: bytes) -> Aside:
        """A broker that proved its name wants to join."""
        try:
            self._admit(name, _ENTRY.decode(entry))
        except (GeomqError, *UNREADABLE) as error:
            self._core.counts.brokers_refused += 1
            log.warning("refused a broker that asked to join", extra={"peer": name, "reason": str(error)})
            return NotJoined(str(error)[:500])
        return Described(encode_description(self._editions.description))

    def _admit(self, name: BrokerId, entry: BrokerEntry) -> None:
        if entry.name != name:
            raise ConfigError(f"broker {name} cannot join as {entry.name}")
        if name not in self._editions.description.names and not admits(self._core.config, name):
            raise ConfigError(
                f"[federation] admit of this broker does not name {name}; name it there or add it by hand"
            )
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
        self.learn(description)

    def learn(self, data: bytes) -> bool:
        """A description came; whether this broker is part of it."""
        try:
            description = decode_description(data)
            self._handle(DescriptionLearned(description))
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
            self._handle(ChangeAsked(change))
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
