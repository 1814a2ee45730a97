"""A broker on its way through the editions of a federation that changes while it runs: brokers come and go, areas and
strategy change.

The description of the federation travels over the links; the latest edition wins everywhere. A new edition brings new
routing, and the old goes on beside it until nobody needs it. Each message says to which edition it belongs, so the two
never meet. A broker goes through the phases of `Phase`, and goes on only when all others have come so far:

    adopted     let the new routing know every client; it informs its peers
    prepared    all that others have to hold for my clients is under way to them
    ready       I hold what all others asked for: events of the new edition will be matched here
    switched    all are ready, so own clients' events go by the new routing
    drained     all have switched; what the old routing had under way is passed on

When all have drained and a pause is over, the old routing is dropped. An event goes by exactly one routing, and that
one is complete: nothing is lost and nothing doubled. A broker that is away holds the change up, not the events.

Owns descriptions and phases; the strategies themselves are in `routings.py`.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from geomq.errors import ConfigError
from geomq.routing.core.actions import Action, SendToPeer
from geomq.routing.core.messages import Message
from geomq.routing.core.model import CONFIGURED, BrokerId, Edition
from geomq.routing.core.strategy import Strategy
from geomq.routing.core.topology import Federation
from geomq.routing.federation.changes import Change, changed
from geomq.routing.federation.description import (
    Description,
    check_description,
    decode_description,
    describe,
    encode_description,
    federation_of,
)
from geomq.routing.federation.edition_messages import (
    EditionReached,
    OfferDescription,
    Phase,
    PutDescription,
    WantDescription,
)
from geomq.routing.federation.editions import KeepEditions, Kept, part_of, routing_key
from geomq.routing.federation.routings import Routings

PAUSE_MS = 5_000.0
"""How long the old routing stays after all have drained, for what is on its way over several hops."""
CHANGES_MAX = 16
EDITIONS_MAX = 8
PROBLEM_CHARS_MAX = 200


class LiveEditions:
    """Which editions there are, how far this broker and its peers are, and what they have to say about it."""

    def __init__(
        self,
        me: BrokerId,
        first: Description,
        routings: Routings,
        *,
        act: Callable[[Action], None],
        peers_changed: Callable[[float], None],
        own_strategy: str = "",
    ) -> None:
        self._me = me
        self._routings = routings
        self._act = act
        self._peers_changed = peers_changed
        self.descriptions: dict[Edition, Description] = {routings.newest: first}
        """By live routing, the latest description it follows."""
        self.phase = Phase.DRAINED
        self.problem = ""
        """Why this broker cannot go on, if the driver knows a reason."""
        self._own_strategy = own_strategy
        self._reached: dict[BrokerId, dict[Edition, EditionReached]] = {}
        self._offers: dict[BrokerId, Edition] = {}
        self._asked: BrokerId | None = None
        self._mine: list[tuple[Edition, Change]] = []
        """Own changes, to be made again should a change made elsewhere at the same time overtake them."""
        self._used: dict[Edition, None] = {routings.newest: None}
        """The routings that own clients' events may have gone by."""
        self.deadline: float | None = None
        """When the old routing is dropped."""
        self.peers = self._all_peers()

    def report(self, problem: str) -> None:
        """Why this broker cannot go on, as far as the driver knows; nothing if it can."""
        self.problem = problem

    @property
    def keys(self) -> tuple[Edition, ...]:
        """The editions in which the live routings began, the oldest first."""
        return tuple(self.descriptions)

    @property
    def description(self) -> Description:
        return self.descriptions[self._routings.newest]

    @property
    def edition(self) -> Edition:
        return self.description.edition

    @property
    def changing(self) -> bool:
        """Whether an older routing is still there."""
        return len(self.descriptions) > 1

    @property
    def kept(self) -> Kept:
        live = self._routings.live
        publishing = next(key for key, strategy in live.items() if strategy is self._routings.publishing)
        return Kept(tuple(self.descriptions.values()), publishing, self.phase)

    def _all_peers(self) -> tuple[BrokerId, ...]:
        """Every other broker of the live descriptions that this one is part of."""
        mine = (description for description in self.descriptions.values() if self._me in description.names)
        names = dict.fromkeys(name for description in mine for name in description.names)
        return tuple(name for name in names if name != self._me)

    def waiting_for(self) -> tuple[BrokerId, ...]:
        """The brokers that hold the change up now."""
        if not self.changing:
            return ()
        return tuple(peer for peer in self._awaited() if not self._has_reached(peer, self.phase))

    def reached(self, peer: BrokerId) -> EditionReached | None:
        """What a peer last sent about the newest edition."""
        return self._reached.get(peer, {}).get(self.description.routing)

    def preview(self, change: Change) -> tuple[Description, Federation]:
        """What a change would make of the description; ConfigError if it cannot be."""
        after = changed(self.description, change, by=self._me)
        return after, check_description(after, own_strategy=self._own_strategy)

    # Links.

    def peer_up(self, peer: BrokerId) -> None:
        if peer in self.peers:
            self._reached.pop(peer, None)
            for routing in dict.fromkeys(description.routing for description in self.descriptions.values()):
                if routing != CONFIGURED:
                    self._send(peer, EditionReached(routing, Phase.ADOPTED, self.problem, asks=True))
            if self.edition != CONFIGURED:
                self._send(peer, OfferDescription(self.edition))

    def peer_down(self, peer: BrokerId) -> None:
        self._offers.pop(peer, None)
        if self._asked == peer:
            self._asked = None
            self._ask()

    def said(self, peer: BrokerId, message: Message, now: float) -> bool:
        """Deal with a message of a peer; False if it is not about editions."""
        match message:
            case OfferDescription(edition=edition):
                self._offers[peer] = edition
                self._ask()
            case WantDescription():
                self._send(peer, PutDescription(encode_description(self.description)))
            case PutDescription(description=data):
                self._asked = None
                self._learn_encoded(data, peer, now)
            case EditionReached() as news:
                self._note_reached(peer, news, now)
            case _:
                return False
        return True

    def _send(self, peer: BrokerId, message: Message) -> None:
        self._act(SendToPeer(peer, message))

    # Descriptions.

    def _ask(self) -> None:
        """Ask one of those who have a later edition for it."""
        for peer, edition in self._offers.items():
            if self._asked is None and edition > self.edition and peer in self._routings.linked:
                self._asked = peer
                self._send(peer, WantDescription())

    def _learn_encoded(self, data: bytes, source: BrokerId, now: float) -> None:
        self._offers.pop(source, None)  # what cannot be followed is not asked for again
        with suppress(ConfigError):
            self.learn(decode_description(data), source, now)
        self._ask()

    def change(self, change: Change, now: float) -> None:
        """Somebody in charge wants the federation changed; ConfigError if it cannot be."""
        after, _ = self.preview(change)
        if after.edition != self.edition:
            self._mine = [*self._mine, (after.edition, change)][-CHANGES_MAX:]
            self._adopt(after, None, now)

    def learn(self, description: Description, source: BrokerId | None, now: float) -> None:
        """A description came; ConfigError if it is later than ours and cannot be followed."""
        if description.edition <= self.edition:
            return
        check_description(description, own_strategy=self._own_strategy)
        self._adopt(description, source, now)
        self._make_again(now)

    def replace(self, federation: Federation, now: float) -> None:
        """A federation that has no description is another now."""
        key = self._routings.newest
        self.descriptions[key] = describe(federation, self.description.strategy, self.description.options)
        self._routings.replace_federation(key, federation, now)
        self._change_peers(now)

    def _make_again(self, now: float) -> None:
        """Own changes that the description now in force does not know of are made on top of it."""
        if not self.description.history:
            return  # somebody wrote it anew
        known, oldest = {self.edition, *self.description.history}, min(self.description.history)
        lost = [(edition, change) for edition, change in self._mine if edition not in known and edition > oldest]
        self._mine = [mine for mine in self._mine if mine not in lost]
        for _, change in lost:
            try:
                self.change(change, now)
            except ConfigError:
                continue  # the change made elsewhere leaves no room for it

    def _adopt(self, description: Description, source: BrokerId | None, now: float) -> None:
        """Follow a description from now on, and let everybody know."""
        key = routing_key(description, self._me)
        self.deadline = None
        if key in self.descriptions:
            self._routings.replace_federation(key, federation_of(description), now)
            if key != self._routings.newest:  # a routing begun since then lost to this description
                self._routings.make_newest(key)
                self.descriptions.pop(key)
                self.phase = Phase.ADOPTED
            self.descriptions[key] = description
        else:
            self._begin(key, description, now)
        self._change_peers(now)
        self._act(KeepEditions(self.kept))
        news = PutDescription(encode_description(description)) if source is None else OfferDescription(self.edition)
        for peer in self.peers:
            if peer in self._routings.linked and peer != source:
                self._send(peer, news)
        self._announce_phase()
        for peer, reached in tuple(self._reached.items()):
            if description.routing in reached:
                self._note_reached(peer, reached[description.routing], now)

    def _begin(self, key: Edition, description: Description, now: float) -> None:
        """Start the routing of a new edition and let it know every client."""
        routings = self._routings
        while len(routings.live) >= EDITIONS_MAX:
            self._end(next(each for each, strategy in routings.live.items() if strategy is not routings.publishing))
        strategy = routings.begin(key, *part_of(description, self._me))
        self.descriptions[key] = description
        self.phase = Phase.ADOPTED
        routings.introduce(strategy, now)

    def _end(self, key: Edition) -> None:
        self._routings.end(key)
        self._used.pop(key, None)
        del self.descriptions[key]

    def _change_peers(self, now: float) -> None:
        self.peers = self._all_peers()
        self._peers_changed(now)
        for peer in [peer for peer in self._reached if peer not in self.peers]:
            del self._reached[peer]

    def restore(self, kept: Kept) -> None:
        """Go on where the broker was when it stopped."""
        for description in kept.descriptions[1:]:
            key = routing_key(description, self._me)
            self._routings.begin(key, *part_of(description, self._me))
            self.descriptions[key] = description
        live = self._routings.live
        publishing = kept.publishing if kept.publishing in live else self._routings.newest
        self._routings.publishing = live[publishing]
        keys = tuple(live)
        self._used = dict.fromkeys(keys[: keys.index(publishing) + 1])
        self.phase = Phase(min(max(kept.phase, Phase.ADOPTED), Phase.DRAINED))
        self._change_peers(0.0)

    # Phases.

    def _note_reached(self, peer: BrokerId, news: EditionReached, now: float) -> None:
        known = self._reached.setdefault(peer, {})
        known.pop(news.edition, None)
        known[news.edition] = msgspec.structs.replace(news, problem=news.problem[:PROBLEM_CHARS_MAX])
        while len(known) > EDITIONS_MAX:
            del known[next(iter(known))]
        if peer not in self._routings.linked:
            return
        found = self._routings.live.get(news.edition)
        within = self._routings.within.get(news.edition, ())
        new = found is not None and peer in found.federation.position and peer not in within
        if new:
            self._routings.enter(news.edition, peer, now)
        # Who is no longer part of the newest routing has one of its own instead, and goes through the same phases.
        if new or (news.asks and (found is not None or news.edition == self.description.routing)):
            self._send(peer, self._own_reached(news.edition))

    def _own_reached(self, routing: Edition) -> EditionReached:
        phase = self.phase if routing == self.description.routing else Phase.ADOPTED
        return EditionReached(routing, phase, self.problem)

    def _announce_phase(self) -> None:
        routing = self.description.routing
        if routing != CONFIGURED:
            for peer in self.peers:
                if peer in self._routings.linked:
                    self._send(peer, self._own_reached(routing))

    def _awaited(self) -> list[BrokerId]:
        """Who has to come along: every other broker of the newest edition and, of those who leave, the reachable."""
        names, linked = self.description.names, self._routings.linked
        members = [name for name in names if name != self._me]
        leaving = [peer for peer in self.peers if peer not in names and peer in linked]
        if self._me not in names:
            return [peer for peer in (*members, *leaving) if peer in linked]
        return members if self.phase < Phase.SWITCHED else [*members, *leaving]

    def _has_reached(self, peer: BrokerId, phase: int) -> bool:
        if phase == Phase.ADOPTED and self._me in self.description.names:
            return peer in self._routings.within.get(self._routings.newest, ())
        reached = self.reached(peer)
        return reached is not None and reached.phase >= phase

    def advance(self, now: float) -> None:
        """Something happened: go as far as the others allow."""
        if not self.changing:
            return
        routings = self._routings
        strategy = routings.live[routings.newest]
        while self.phase < Phase.DRAINED and self._all_reached(self.phase) and self._may_pass(strategy, now):
            self.phase = Phase(self.phase + 1)
            if self.phase == Phase.SWITCHED:
                routings.publishing = strategy
                self._used[routings.newest] = None
            self._act(KeepEditions(self.kept))
            self._announce_phase()
        if self.phase == Phase.DRAINED and self.deadline is None and self._all_reached(Phase.DRAINED):
            self.deadline = now + PAUSE_MS
        if self.deadline is not None and now >= self.deadline:
            self._retire(now)

    def _all_reached(self, phase: int) -> bool:
        if self._me not in self.description.names and phase < Phase.SWITCHED:
            return True  # who leaves has nothing to prepare
        return all(self._has_reached(peer, phase) for peer in self._awaited())

    def _may_pass(self, strategy: Strategy, now: float) -> bool:
        """Whether the routings themselves allow the next phase."""
        if self.phase == Phase.PREPARED:
            return strategy.is_ready(now=now)
        if self.phase == Phase.SWITCHED:
            older = (old for key, old in self._routings.live.items() if key in self._used and old is not strategy)
            return all(old.is_drained(now=now) for old in older)
        return True

    def _retire(self, now: float) -> None:
        """Nobody needs the older routings any more."""
        self.deadline = None
        newest = self._routings.newest
        for key in [key for key in self.descriptions if key != newest]:
            self._end(key)
        self._change_peers(now)
        self._act(KeepEditions(self.kept))
