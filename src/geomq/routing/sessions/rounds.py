"""Rounds of one question to all peers: has all that I sent so far reached you, or: has all that you sent arrived?

Links keep the order. So once all have answered they know all that this broker sent before it asked, and all that they
sent before they answered is here. After the second question all that was under way between any two is there, too.
"""

from collections.abc import Callable

import msgspec

from geomq.routing.core.actions import Action, SendToPeer
from geomq.routing.core.model import BrokerId
from geomq.routing.sessions.messages import AskFlushed, AskReached

EPOCH_BITS = 20
NUMBER_BITS = 62


class Rounds:
    """The rounds of one broker with one question, one after the other."""

    def __init__(
        self,
        me: BrokerId,
        brokers: tuple[BrokerId, ...],
        act: Callable[[Action], None],
        *,
        epoch: int,
        question: type[AskReached | AskFlushed] = AskReached,
    ) -> None:
        self._question = question
        self._me = me
        self._brokers = brokers
        self._act = act
        self._number = (epoch << EPOCH_BITS) % (1 << NUMBER_BITS)
        """The last round that began; after a restart there are others."""
        self._wanted = self._number
        self._answered: dict[BrokerId, int] = dict.fromkeys(brokers, self._number)
        """The last round in which each peer answered."""

    def federation_changed(self, brokers: tuple[BrokerId, ...]) -> None:
        self._brokers = brokers

    def begin(self) -> int:
        """The round that begins now, or as soon as the one before it is past."""
        if self._wanted == self._number:
            self._wanted += 1
        self._go_on()
        return self._wanted

    def _go_on(self) -> None:
        if self._wanted > self._number and self.is_past(self._number):
            self._number += 1
            for peer in self._brokers:
                self.ask(peer)

    def is_past(self, number: int) -> bool:
        """Whether all peers have answered in this round or a later one."""
        return all(self._answered.get(peer, 0) >= number for peer in self._brokers if peer != self._me)

    def answered(self, peer: BrokerId, number: int) -> bool:
        """A peer has answered; whether the round is past by that."""
        if number != self._number or self.is_past(number):
            return False
        self._answered[peer] = number
        past = self.is_past(number)
        self._go_on()
        return past

    def ask_again(self) -> None:
        """Ask who has not answered in the round that is open."""
        for peer in self._brokers:
            self.ask(peer)

    def ask(self, peer: BrokerId) -> None:
        """Ask one, if it has not answered: it may have crashed with its answer."""
        if peer in self._brokers and peer != self._me and self._answered.get(peer) != self._number:
            self._act(SendToPeer(peer, self._question(self._number)))


class Drain(msgspec.Struct):
    """What is under way to a broker by way of others drains: first to them, then to it. 0 for what has not begun."""

    flushed_after: int = 0
    here_after: int = 0


class Drains:
    """One round of each question after the other: what was under way anywhere when the first began is here."""

    def __init__(self, flushes: Rounds, rounds: Rounds) -> None:
        self._flushes = flushes
        self._rounds = rounds

    def begin(self) -> Drain:
        return Drain(flushed_after=self._flushes.begin())

    def begin_last(self) -> Drain:
        """Where nothing more can be on its way to others."""
        return Drain(here_after=self._rounds.begin())

    def is_past(self, drain: Drain) -> bool:
        """Whether all is here; its second round begins when the first is past."""
        if not drain.here_after and self._flushes.is_past(drain.flushed_after):
            drain.here_after = self._rounds.begin()
        return bool(drain.here_after) and self._rounds.is_past(drain.here_after)
