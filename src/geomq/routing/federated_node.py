"""A broker's core in a federation that changes while it runs: brokers come and go, areas and strategy change.

The description of the federation travels over the links; the latest edition wins everywhere. A new edition brings new
routing, and the old goes on beside it until nobody needs it. Each message says to which edition it belongs, so the two
never meet. A broker goes through the phases of `Phase`, and goes on only when all others have come so far:

    adopted     tell the new routing of every client; it tells its peers
    prepared    all that others have to hold for my clients is under way to them
    ready       I hold what all others asked for: events of the new edition will be matched here
    switched    all are ready, so own clients' events go by the new routing
    drained     all have switched; what the old routing had under way is passed on

When all have drained and a pause is over, the old routing is dropped. An event goes by exactly one routing, and that
one is complete: nothing is lost and nothing doubled. A broker that is away holds the change up, not the events.
"""

import msgspec

from geomq.errors import ConfigError
from geomq.routing.changes import Change, changed
from geomq.routing.description import (
    Description,
    check_description,
    decode_description,
    encode_description,
    federation_of,
)
from geomq.routing.edition_messages import EditionReached, OfferDescription, Phase, PutDescription, WantDescription
from geomq.routing.editioned_node import EditionedNode
from geomq.routing.editions import ChangeAsked, DescriptionLearned, KeepEditions, Kept, part_of, routing_key
from geomq.routing.events import PeerDown, PeerSaid, PeerUp
from geomq.routing.federation import Federation
from geomq.routing.messages import OF_EVENTS
from geomq.routing.model import CONFIGURED, BrokerId, Edition
from geomq.routing.strategy import Dice, Strategy

PAUSE_MS = 5_000.0
"""How long the old routing stays after all have drained, for what is on its way over several hops."""
CHANGES_MAX = 16
EDITIONS_MAX = 8
PROBLEM_CHARS_MAX = 200


class FederatedNode(EditionedNode):
    """A node that follows the federation description through its editions."""

    def __init__(
        self,
        *,
        me: BrokerId,
        description: Description,
        epoch: int = 0,
        rng: Dice,
        kept: Kept | None = None,
        own_strategy: str = "",
        pause_ms: float | None = None,
    ) -> None:
        first = description if kept is None else kept.descriptions[0]
        federation, strategy, options = part_of(first, me)
        super().__init__(
            me=me,
            federation=federation,
            strategy=strategy,
            options=options,
            edition=routing_key(first, me),
            epoch=epoch,
            rng=rng,
        )
        self.descriptions: dict[Edition, Description] = {routing_key(first, me): first}
        """By live routing, the latest description it follows."""
        self.phase = Phase.DRAINED
        self.problem = ""
        """Why this broker cannot go on, if the driver knows a reason."""
        self._own_strategy = own_strategy
        self._pause_ms = PAUSE_MS if pause_ms is None else pause_ms
        self._reached: dict[BrokerId, dict[Edition, EditionReached]] = {}
        self._offers: dict[BrokerId, Edition] = {}
        self._asked: BrokerId | None = None
        self._mine: list[tuple[Edition, Change]] = []
        """Own changes, to be made again should a change made elsewhere at the same time overtake them."""
        self._used: dict[Edition, None] = {self.newest: None}
        """The routings that own clients' events may have gone by."""
        self._retire_at: float | None = None
        self._handlers |= {
            ChangeAsked: self._change_asked,
            DescriptionLearned: lambda e, now: self._learn(e.description, None, now),
        }
        if kept is not None:
            self._restore(kept)
        self.peers = self._peers()

    @property
    def description(self) -> Description:
        return self.descriptions[self.newest]

    @property
    def edition(self) -> Edition:
        return self.description.edition

    @property
    def changing(self) -> bool:
        """Whether an older routing is still there."""
        return len(self.live) > 1

    @property
    def kept(self) -> Kept:
        publishing = next(key for key, strategy in self.live.items() if strategy is self.strategy)
        return Kept(tuple(self.descriptions[key] for key in self.live), publishing, self.phase)

    def _peers(self) -> tuple[BrokerId, ...]:
        """Every other broker of the live descriptions that this one is part of."""
        mine = (description for description in self.descriptions.values() if self.me in description.names)
        names = dict.fromkeys(name for description in mine for name in description.names)
        return tuple(name for name in names if name != self.me)

    def waiting_for(self) -> tuple[BrokerId, ...]:
        """The brokers that hold the change up now."""
        if not self.changing:
            return ()
        return tuple(peer for peer in self._awaited() if not self._has_reached(peer, self.phase))

    def reached(self, peer: BrokerId) -> EditionReached | None:
        """What a peer last said about the newest edition."""
        return self._reached.get(peer, {}).get(self.newest)

    def preview(self, change: Change) -> tuple[Description, Federation]:
        """What a change would make of the description; ConfigError if it cannot be."""
        after = changed(self.description, change, by=self.me)
        return after, check_description(after, own_strategy=self._own_strategy)

    def next_deadline(self) -> float | None:
        deadlines = (super().next_deadline(), self._retire_at)
        return min((each for each in deadlines if each is not None), default=None)

    # Links.

    def _peer_up(self, happened: PeerUp, now: float) -> None:
        super()._peer_up(happened, now)
        peer = happened.peer
        if peer in self.peers:
            self._reached.pop(peer, None)
            for key in self.live:
                if key != CONFIGURED:
                    self.say(peer, EditionReached(key, Phase.ADOPTED, self.problem, asks=True))
            if self.edition != CONFIGURED:
                self.say(peer, OfferDescription(self.edition))

    def _peer_down(self, happened: PeerDown, now: float) -> None:
        super()._peer_down(happened, now)
        self._offers.pop(happened.peer, None)
        if self._asked == happened.peer:
            self._asked = None
            self._ask()

    def _peer_said(self, happened: PeerSaid, now: float) -> None:
        peer = happened.peer
        match happened.message:
            case message if happened.edition is not None or isinstance(message, OF_EVENTS):
                self._pass_on(happened, now)
            case OfferDescription(edition=edition):
                self._offers[peer] = edition
                self._ask()
            case WantDescription():
                self.say(peer, PutDescription(encode_description(self.description)))
            case PutDescription(description=data):
                self._asked = None
                self._learn_encoded(data, peer, now)
            case EditionReached() as news:
                self._note_reached(peer, news, now)
            case _:
                super()._peer_said(happened, now)

    # Descriptions.

    def _ask(self) -> None:
        """Ask one of those who have a later edition for it."""
        for peer, edition in self._offers.items():
            if self._asked is None and edition > self.edition and peer in self.linked:
                self._asked = peer
                self.say(peer, WantDescription())

    def _learn_encoded(self, data: bytes, source: BrokerId, now: float) -> None:
        try:
            self._learn(decode_description(data), source, now)
        except ConfigError:
            self._offers.pop(source, None)  # what cannot be followed is not asked for again
        self._ask()

    def _change_asked(self, asked: ChangeAsked, now: float) -> None:
        after, _ = self.preview(asked.change)
        if after.edition != self.edition:
            self._mine = [*self._mine, (after.edition, asked.change)][-CHANGES_MAX:]
            self._adopt(after, None, now)

    def _learn(self, description: Description, source: BrokerId | None, now: float) -> None:
        if description.edition <= self.edition:
            return
        check_description(description, own_strategy=self._own_strategy)
        self._adopt(description, source, now)
        self._make_again(now)

    def _make_again(self, now: float) -> None:
        """Own changes that the description now in force does not know of are made on top of it."""
        if not self.description.history:
            return  # somebody wrote it anew
        known, oldest = {self.edition, *self.description.history}, min(self.description.history)
        lost = [(edition, change) for edition, change in self._mine if edition not in known and edition > oldest]
        self._mine = [mine for mine in self._mine if mine not in lost]
        for _, change in lost:
            try:
                self._change_asked(ChangeAsked(change), now)
            except ConfigError:
                continue  # the change made elsewhere leaves no room for it

    def _adopt(self, description: Description, source: BrokerId | None, now: float) -> None:
        """Follow a description from now on, and tell everybody."""
        key = routing_key(description, self.me)
        self._retire_at = None
        if key in self.live:
            strategy = self.live[key]
            before, strategy.federation = strategy.federation, federation_of(description)
            strategy.federation_changed(before, now=now)
            self.descriptions[key] = description
        else:
            self._begin(key, description, now)
        self._change_peers(now)
        self._said.append(KeepEditions(self.kept))
        news = PutDescription(encode_description(description)) if source is None else OfferDescription(self.edition)
        for peer in self.peers:
            if peer in self.linked and peer != source:
                self.say(peer, news)
        self._tell_reached()
        for peer, reached in tuple(self._reached.items()):
            if key in reached:
                self._note_reached(peer, reached[key], now)

    def _begin(self, key: Edition, description: Description, now: float) -> None:
        """Start the routing of a new edition and tell it of every client."""
        while len(self.live) >= EDITIONS_MAX:
            self._end(next(each for each, strategy in self.live.items() if strategy is not self.strategy))
        strategy = self.begin(key, *part_of(description, self.me))
        self.descriptions[key] = description
        self.phase = Phase.ADOPTED
        self.introduce(strategy, now)

    def _end(self, key: Edition) -> None:
        self.end(key)
        self._used.pop(key, None)
        del self.descriptions[key]

    def _change_peers(self, now: float) -> None:
        """Share groups and sessions that move span all brokers of live descriptions."""
        self.peers = self._peers()
        self._brokers_changed((self.me, *self.peers), now)
        for peer in self.linked:
            self.shared.peer_up(peer)
            self.travellers.peer_up(peer, now=now)
        for peer in [peer for peer in self._reached if peer not in self.peers]:
            del self._reached[peer]

    def _restore(self, kept: Kept) -> None:
        """Go on where the broker was when it stopped."""
        for description in kept.descriptions[1:]:
            key = routing_key(description, self.me)
            self.begin(key, *part_of(description, self.me))
            self.descriptions[key] = description
        publishing = kept.publishing if kept.publishing in self.live else self.newest
        self.strategy = self.live[publishing]
        keys = tuple(self.live)
        self._used = dict.fromkeys(keys[: keys.index(publishing) + 1])
        self.phase = Phase(min(max(kept.phase, Phase.ADOPTED), Phase.DRAINED))
        self._brokers_changed((self.me, *self._peers()), 0.0)

    # Phases.

    def _note_reached(self, peer: BrokerId, news: EditionReached, now: float) -> None:
        known = self._reached.setdefault(peer, {})
        known.pop(news.edition, None)
        known[news.edition] = msgspec.structs.replace(news, problem=news.problem[:PROBLEM_CHARS_MAX])
        while len(known) > EDITIONS_MAX:
            del known[next(iter(known))]
        found = self.live.get(news.edition)
        if found is None or peer not in self.linked:
            return
        new = peer in found.federation.position and peer not in self.within.get(news.edition, ())
        if new:
            self.enter(news.edition, peer, now)
        if new or news.asks:
            self.say(peer, self._own_reached(news.edition))

    def _own_reached(self, key: Edition) -> EditionReached:
        phase = self.phase if key == self.newest else Phase.ADOPTED
        return EditionReached(key, phase, self.problem)

    def _tell_reached(self) -> None:
        if self.newest != CONFIGURED:
            for peer in self.peers:
                if peer in self.linked:
                    self.say(peer, self._own_reached(self.newest))

    def _awaited(self) -> list[BrokerId]:
        """Who has to come along: every other broker of the newest edition and, of those who leave, the reachable."""
        members = [name for name in self.description.names if name != self.me]
        leaving = [peer for peer in self.peers if peer not in self.description.names and peer in self.linked]
        if self.me not in self.description.names:
            return [peer for peer in (*members, *leaving) if peer in self.linked]
        return members if self.phase < Phase.SWITCHED else [*members, *leaving]

    def _has_reached(self, peer: BrokerId, phase: int) -> bool:
        if phase == Phase.ADOPTED and self.me in self.description.names:
            return peer in self.within.get(self.newest, ())
        reached = self.reached(peer)
        return reached is not None and reached.phase >= phase

    def advance(self, now: float) -> None:
        """Go as far as the others allow."""
        if not self.changing:
            return
        strategy = self.live[self.newest]
        while self.phase < Phase.DRAINED and self._all_reached(self.phase) and self._may_pass(strategy, now):
            self.phase = Phase(self.phase + 1)
            if self.phase == Phase.SWITCHED:
                self.strategy = strategy
                self._used[self.newest] = None
            self._said.append(KeepEditions(self.kept))
            self._tell_reached()
        if self.phase == Phase.DRAINED and self._retire_at is None and self._all_reached(Phase.DRAINED):
            self._retire_at = now + self._pause_ms
        if self._retire_at is not None and now >= self._retire_at:
            self._retire(now)

    def _all_reached(self, phase: int) -> bool:
        if self.me not in self.description.names and phase < Phase.SWITCHED:
            return True  # who leaves has nothing to prepare
        return all(self._has_reached(peer, phase) for peer in self._awaited())

    def _may_pass(self, strategy: Strategy, now: float) -> bool:
        """Whether the routings themselves allow the next phase."""
        if self.phase == Phase.PREPARED:
            return strategy.is_ready(now=now)
        if self.phase == Phase.SWITCHED:
            older = (old for key, old in self.live.items() if key in self._used and old is not strategy)
            return all(old.is_drained(now=now) for old in older)
        return True

    def _retire(self, now: float) -> None:
        """Nobody needs the older routings any more."""
        self._retire_at = None
        newest = self.newest
        for key in [key for key in self.live if key != newest]:
            self._end(key)
        self._change_peers(now)
        self._said.append(KeepEditions(self.kept))
