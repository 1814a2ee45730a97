"""What a peer should send of its clients' events, as this broker sees it, and when it is told.

When their link comes up a peer is told everything, and from then on what else is wanted, as soon as that is so. What is
no longer wanted goes when everything is told anew, because too much came in vain for which that is the reason.

A peer that has refused the digest sends every event whose fence meets this broker's coverage. The digest is kept all
the same, as if the peer knew it. Events that came in vain and that it would have spared speak for telling, each time it
has to grow against it: the sum never falls below zero, and when it reaches `patience` all is told again. After each
refusal that takes twice as many.

Who subscribes without a fence wants what happens anywhere, and hardly any event is spared by saying where he is: the
first such interest of an entry makes it say that all is wanted, until too much comes in vain that a finer one would
have spared.

Slack follows what was seen: when the digest has grown often by little because somebody moved, it becomes wide enough
for that; when more came in vain because of it than it has saved in growth, it becomes narrower by a step, and it takes
twice as much to widen it again.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from geomq.routing.core.model import Event
from geomq.routing.strategies.digests.digest import Around, Entry, Interest, Key, around, keys_of

SLACKS_M = (0.0, 250.0, 1_000.0, 4_000.0, 16_000.0, 64_000.0, 256_000.0)
MARGIN = 0.75
"""Of the slack clients may use so much before the peer is told: it knows before events would be missed."""
WIDENING = 2
"""How often a digest has to grow by little before its slack follows."""
RENEWING = 2
"""How many events come in vain, because of what is no longer wanted, before all is told anew."""
LOOSE = 4
"""How many may come in vain because of the slack before it goes."""
BACKOFF_MAX = 64
KEYS_MAX = 15_000
"""Entries of a digest; who wants more than that is sent everything."""
REBUILT_MAX = 256
"""An entry of more interests than this is not made anew each time that it grows, or that an event came in vain."""

Name = TypeVar("Name")


class Outlook(Generic[Name]):
    """This broker's interests that concern one peer, by name, and the digest of them that the peer has or would
    have."""

    def __init__(self, patience: int) -> None:
        self.interests: dict[Key, dict[Name, Interest]] = {}
        self.entries: dict[Key, Entry] = {}
        self.is_told = False
        self.version = 0
        self.whole_version = 0
        """When everything was told last."""
        self._slack = 0
        self._wasted = 0
        self._loose = 0
        self._grown = 0
        self._patience_min = patience
        self._patience = 0
        self._widening = WIDENING
        self._passed: dict[Key, int] = {}
        """Of entries with very many interests, those of them for which events came in vain since that was looked
        into."""
        self._plain: dict[Key, int] = {}
        """Entries that say that all is wanted, and how many events came in vain because of that."""
        self._fine: dict[Key, None] = {}
        """Entries that said so before."""
        self._new: dict[Name, None] = {}
        """Interests that came in this turn."""

    @property
    def slack_m(self) -> float:
        return SLACKS_M[self._slack]

    @property
    def _less_m(self) -> float:
        return SLACKS_M[max(0, self._slack - 1)]

    @property
    def size(self) -> int:
        return sum(len(entry.units) for entry in self.entries.values())

    def put(self, name: Name, interest: Interest) -> None:
        named = self.interests.setdefault(interest.key, {})
        if name not in named:
            self._new[name] = None
        named[name] = interest

    def drop(self, name: Name, key: Key) -> None:
        named = self.interests.get(key, {})
        named.pop(name, None)
        if not named:
            for by_key in (self.interests, self._passed, self._plain, self._fine):
                by_key.pop(key, None)

    def renew(self, changed: Mapping[Name, Interest]) -> dict[Key, Entry] | None:
        """What the digest needs so that it covers these interests again; None if everything is to be told anew."""
        spare_m = MARGIN * (self.slack_m - self._less_m)
        short = {name: self._short_of(interest) - spare_m for name, interest in changed.items()}
        lacking = {name: changed[name] for name, by_m in short.items() if by_m > 0.0}
        moved = [short[name] for name in lacking if name not in self._new]
        self._new = {}
        if not lacking:
            if any(by_m > -spare_m for by_m in short.values()):  # with less slack it would have had to be told
                self._loose = max(0, self._loose - 1)
            return {}
        self._wasted = max(0, self._wasted - 1)
        if moved and self._widens(max(moved)):
            self.rebuild()
            return None
        grown = {interest.key: self._grow(name, interest) for name, interest in lacking.items()}
        if len(self.entries) > KEYS_MAX:
            self.rebuild()
            return None
        return grown

    def _short_of(self, interest: Interest) -> float:
        """By how much the digest would be too narrow with the next smaller slack."""
        entry = self.entries.get(interest.key)
        return float("inf") if entry is None else entry.short_of(interest, MARGIN * self._less_m)

    def _widens(self, by_m: float) -> bool:
        """The digest was too narrow by this much: whether that happened often enough to do something about it."""
        enough = MARGIN * self.slack_m + by_m
        if enough > MARGIN * SLACKS_M[-1]:
            return False
        self._grown += 1
        if self._grown < self._widening:
            return False
        self._grown, self._loose = 0, 0
        self._slack = next(number for number, slack_m in enumerate(SLACKS_M) if MARGIN * slack_m >= enough)
        return True

    def _grow(self, name: Name, interest: Interest) -> Entry:
        """Make the entry anew, or if that takes long only larger."""
        key = interest.key
        named, entry = self.interests[key], self.entries.get(key)
        if interest.around is None and key not in self._fine:
            self._plain[key] = 0
            entry = self.entries[key] = Entry.everything()
        elif entry is None or len(named) <= REBUILT_MAX or not entry.add(interest):
            entry = self.entries[key] = Entry.of(named.values())
        return entry

    def has_ended(self) -> bool:
        """Whether there is a digest of nothing; it is empty then."""
        if self.interests or not self.entries:
            return False
        self.entries = {}
        return True

    def rebuild(self) -> None:
        """Make the digest anew, no larger than it has to be."""
        self.entries = {
            key: Entry.everything() if key in self._plain else Entry.of(named.values())
            for key, named in self.interests.items()
        }

    def came_in_vain(self, event: Event) -> bool:
        """An event came that nobody wanted; whether everything is to be told, now that it is made anew."""
        fence, keys = around(event.fence), keys_of(event.topic)
        if self.is_told and not self._concerns(self.entries, keys, event, fence, self.slack_m):
            return False  # it was under way when that was told
        fresh = {key: entry for key in keys if (entry := self._fresh(key)) is not None}
        plain = [key for key in keys if key in self._plain]
        if plain:
            return not self._concerns(fresh, keys, event, fence, self.slack_m) and self._refines(plain)
        if not self._concerns(fresh, keys, event, fence, self.slack_m):
            self._wasted += 1
            if self._wasted < (RENEWING if self.is_told else self._patience):
                return False
        else:
            spared = self._slack > 0 and not self._concerns(fresh, keys, event, fence, self._less_m)
            return spared and self._narrows()
        self._wasted = 0
        self.rebuild()
        self.is_told = len(self.entries) <= KEYS_MAX
        return self.is_told

    def _refines(self, plain: Iterable[Key]) -> bool:
        """An event came in vain that finer entries would have spared: whether the peer is to be told of such."""
        for key in plain:
            self._plain[key] += 1
        enough = [key for key in plain if self._plain[key] >= self._patience_min]
        for key in enough:
            del self._plain[key]
            self._fine[key] = None
        if enough:
            self.rebuild()
        return bool(enough) and self.is_told

    def _narrows(self) -> bool:
        """An event came in vain because of the slack: whether that is enough to send the peer a narrower one."""
        self._loose += 1
        if self._loose < LOOSE:
            return False
        self._slack, self._loose, self._grown = self._slack - 1, 0, 0
        self._widening = min(BACKOFF_MAX, 2 * self._widening)
        self.rebuild()
        return self.is_told

    def _fresh(self, key: Key) -> Entry | None:
        """The entry as it would be if it were made anew."""
        named = self.interests.get(key)
        if named is None:
            return None
        if len(named) <= REBUILT_MAX:
            return Entry.of(named.values())
        self._passed[key] = self._passed.get(key, 0) + REBUILT_MAX
        if self._passed[key] < len(named):
            return self.entries.get(key)
        del self._passed[key]
        return Entry.of(named.values())

    @staticmethod
    def _concerns(
        entries: Mapping[Key, Entry], keys: Iterable[Key], event: Event, fence: Around | None, slack_m: float
    ) -> bool:
        return any(entries[key].known(slack_m).concerns(event, fence) for key in keys if key in entries)

    def next_version(self, *, whole: bool) -> int:
        """The number of what is told now."""
        self.version += 1
        if whole:
            self.whole_version = self.version
        return self.version

    def refused(self) -> None:
        """The peer found that being told costs more than it saves."""
        self.is_told, self._wasted = False, 0
        self._patience = min(BACKOFF_MAX, max(self._patience_min, 2 * self._patience))

    def told(self, *, is_told: bool) -> None:
        """The peer has been told everything just now, or has nothing of this broker any more."""
        self.is_told = is_told
