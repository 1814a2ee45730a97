"""Strategies with planted bugs, one for each rule that a checker guards."""

from typing import Any

from geomq.routing.core.messages import DropClient, DropSubscription, ForwardEvent, Message
from geomq.routing.core.model import BrokerId, Event, Match
from geomq.routing.strategies.flooding import FloodEvents, FloodSubscriptions


class Forgetful(FloodEvents):
    """Leaves out the last broker of the federation."""

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return self.federation.ids[:-1]


class Stutterer(FloodEvents):
    """Delivers everything twice."""

    def deliver(self, event: Event, matches: tuple[Match, ...]) -> None:
        super().deliver(event, matches)
        super().deliver(event, matches)


class Gossip(FloodEvents):
    """Delivers to everybody, wanted or not."""

    def match_here(self, event: Event) -> None:
        self.deliver(event, tuple(Match(client, "#") for client in self.clients))


class Juggler(FloodEvents):
    """Throws every event back a few dozen times."""

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        if isinstance(message, ForwardEvent) and message.hops < 40:
            self.send(peer, ForwardEvent(message.event, message.hops + 1))


class Repeater(FloodEvents):
    """Sends every event over and over."""

    def published(self, event: Event, *, now: float) -> None:
        for _ in range(20):
            super().published(event, now=now)


class Hoarder(FloodSubscriptions):
    """Never forgets what others had."""

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        if not isinstance(message, DropClient | DropSubscription):
            super().said(peer, message, now=now)


class Clumsy(FloodEvents):
    """Falls over at the first event."""

    def published(self, event: Event, *, now: float) -> None:
        raise RuntimeError("fell over")


class Idle(FloodEvents):
    """Takes everything in and does nothing."""

    def __init__(self, **context: Any) -> None:
        super().__init__(**context)
        self.deadlines: list[float] = []
        self.at: float | None = None

    def published(self, event: Event, *, now: float) -> None:
        """Nothing."""

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        """Nothing."""

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        """Nothing."""

    def next_deadline(self) -> float | None:
        return self.at

    def on_deadline(self, *, now: float) -> None:
        self.deadlines.append(now)
        self.at = None
