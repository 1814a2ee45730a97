"""Why each broker was asked with an event, or was not: what it was sent, held against its strategy's rule.

Where the rule and the records do not agree, or a strategy is not known, only what the records say is told.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from geomq.errors import GeometryError
from geomq.geo import Fence, Location, parse_fence
from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.grid_quorum import grid_side
from geomq.routing.trace.records import TraceRecord
from geomq.workload.traffic.verdict import NO_SUBSCRIPTIONS, Case, Verdict

NAMED_MAX = 3


class Asked(NamedTuple):
    """A broker, whether it was asked with the event, and because of what."""

    broker: str
    asked: bool
    text: str


class _Way:
    """One event on its way through a federation."""

    def __init__(self, case: Case, event: TraceRecord, federation: Federation) -> None:
        self.case = case
        self.federation = federation
        self.origin = event.broker
        self.key = first_level(event.topic or "") or ""
        self.at = None if event.lat is None or event.lon is None else Location(event.lat, event.lon)
        self.fence: Fence | None = None if event.fence is None else parse_fence(event.fence)
        self.touched = frozenset(federation.touched(self.fence))

    def cell(self, broker: str) -> tuple[int, int]:
        ids = self.federation.ids
        return divmod(ids.index(broker), grid_side(len(ids)))


Rule = Callable[[_Way, str], str]


class Reasons:
    """Why one event went to which brokers."""

    def __init__(self, case: Case, federation: Federation, strategy: str) -> None:
        self._way = _way(case, federation)
        self._strategy = strategy

    def brokers(self) -> list[Asked]:
        """Every broker in federation order; none if the records do not say what was published."""
        return [] if self._way is None else [self._asked(self._way, broker) for broker in self._way.federation.ids]

    def because(self, told: TraceRecord) -> str | None:
        """Because of what a broker was sent the event, if matches or the strategy's rule tell."""
        way = self._way
        receiver = told.peer if told.step == "sent" else told.broker
        if way is None or receiver is None or told.peer is None:
            return None
        if told.reason == "DeliverEvent":
            return _matches(way.case, told.broker if told.step == "sent" else told.peer, receiver)
        rule = _ASKED.get(self._strategy)
        return None if rule is None or receiver not in way.federation.position else _say(rule, way, receiver)

    def _asked(self, way: _Way, broker: str) -> Asked:
        if broker == way.origin:
            return Asked(broker, True, "its client published the event")
        told = next((step for step in way.case.steps if _reaches(step, broker)), None)
        if told is None:
            return Asked(broker, False, _say(_NOT_ASKED.get(self._strategy, NOT_SHOWN), way, broker))
        sender = told.broker if told.step == "sent" else told.peer
        return Asked(broker, True, self.because(told) or f"{sender} sent it the event")


def _way(case: Case, federation: Federation) -> _Way | None:
    if case.published is None or case.published.broker not in federation.position:
        return None
    try:
        return _Way(case, case.published, federation)
    except GeometryError:
        return None


def _reaches(step: TraceRecord, broker: str) -> bool:
    if step.step == "sent":
        return step.peer == broker
    return step.step == "received" and step.broker == broker


def _matches(case: Case, sender: str, broker: str) -> str | None:
    """Whose subscriptions at a broker another one found to match."""
    found = [step for step in case.steps if step.step == "matched" and (step.broker, step.peer) == (sender, broker)]
    named = dict.fromkeys(f"{step.topic} of {step.client}" for step in found)
    if not named:
        return None
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return f"{sender} knows of subscriptions there that match: {', '.join(list(named)[:NAMED_MAX])}{more}"


def _by_area(way: _Way, broker: str) -> str:
    if way.fence is None:
        return "the event has no fence, so it concerns every area"
    if broker in way.touched:
        return "its area meets the event's fence"
    if way.at is not None and way.federation.owner(way.at) == broker:
        return "the publisher is in its area"
    return "a client of it is out of its area, near the event's fence"


def _by_line(way: _Way, broker: str) -> str:
    same_row = way.cell(way.origin)[0] == way.cell(broker)[0]
    return f"it is in the {'row' if same_row else 'column'} of {way.origin}"


def _not_by_area(way: _Way, broker: str) -> str:
    if broker not in way.touched:
        return "its area does not meet the event's fence"
    return f"its area meets the event's fence, but {NOT_SHOWN}"


def _not_by_area_or_advertised(way: _Way, broker: str) -> str:
    if broker not in way.touched:
        return "its area does not meet the event's fence"
    return f"it advertised its subscriptions under {way.key!r}, and none matched"


_ASKED: Final[dict[str, str | Rule]] = {
    "flood_events": "flooding asks every broker",
    "disgb_events": _by_area,
    "adaptive": _by_area,
    "dht": "topics under {key!r} belong to it",
    "grid_quorum": _by_line,
    "georendezvous": "it serves a place on earth that {key!r} hashes to",
    "mesh": "it is next on the way along the mesh of {key!r}, or towards its core",
}
NOT_MET: Final = "topics under {key!r} do not meet their subscribers there, and no subscription there matched"
NOT_MATCHED: Final = "no subscription there matched"
NOT_SHOWN: Final = "the records do not show that it was sent the event"
_NOT_ASKED: Final[dict[str, str | Rule]] = {
    "flood_subscriptions": NOT_MATCHED,
    "disgb_subscriptions": NOT_MATCHED,
    "broadcast_groups": NOT_MATCHED,
    "mesh": NOT_MATCHED,
    "flood_events": f"{NOT_SHOWN}, as flooding would have it",
    "disgb_events": _not_by_area,
    "adaptive": _not_by_area_or_advertised,
    "dht": NOT_MET,
    "grid_quorum": NOT_MET,
    "georendezvous": NOT_MET,
}


def _say(rule: str | Rule, way: _Way, broker: str) -> str:
    return rule.format(key=way.key) if isinstance(rule, str) else rule(way, broker)


def who_got_it(case: Case, subscribers: Iterable[str]) -> str:
    """What became of the event for clients whose filters fit its topic, in a sentence."""
    clients = list(subscribers)
    if "subscribed" not in case.recorded:
        return f"Who should have got it cannot be told: {NO_SUBSCRIPTIONS}."
    if not clients:
        return "Nobody got it: nobody is known to subscribe to its topic."
    answers = [case.answer(client) for client in clients]
    missed = Counter(answer.verdict for answer in answers if not answer.reached)
    counted = ", ".join(f"{count} {_MISSED[verdict]}" for verdict, count in missed.items())
    reached = len(clients) - missed.total()
    if not reached:
        return f"Nobody got it. Of those who subscribe to its topic: {counted}."
    got = f"{reached} of {len(clients)} who subscribe to its topic got it"
    return f"{got}; {counted}." if counted else f"{got}."


_MISSED: Final[dict[Verdict, str]] = {
    "waiting": "still waiting for it",
    "dropped": "for whom it was dropped",
    "not arrived": "whose broker it has not reached",
    "too late": "whose subscription or move came too late",
    "shared": "for whom another of their share group took it",
    "unexplained": "for whom the records do not say why",
    "outside the event's fence": "outside the event's fence",
    "outside the subscription's fence": "with a fence that the publisher was outside of",
    "no such topic": "who subscribed later",
    "no subscription": "who subscribed later",
    "unknown client": "who came later",
}
