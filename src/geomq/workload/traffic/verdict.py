"""Why an event did, or did not, reach a client: worked out from trace records, live or simulated.

First what the records say (delivered, dropped, waiting). Where they are silent, the rule of delivery is applied to what
the client had at that time: its subscriptions, its location, whether it was connected. Where the rule says it should
have been reached, the path of the event and of the client's subscription over the brokers shows what came too late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from geomq.errors import GeometryError
from geomq.geo import Circle, Location, distance_m, parse_fence
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.model import EventId
from geomq.routing.trace.recorder import SESSION_ENDED
from geomq.routing.trace.records import STEPS, TraceRecord

Verdict = Literal[
    "delivered",
    "waiting",
    "dropped",
    "not arrived",
    "too late",
    "shared",
    "unexplained",
    "outside the event's fence",
    "outside the subscription's fence",
    "no such topic",
    "no subscription",
    "unknown client",
]
RANK: tuple[Verdict, ...] = get_args(Verdict)
"""From the nearest to delivery to the farthest from it."""
NO_DELIVERIES = "the trace holds no delivery: there was none, or deliveries were not recorded ([trace] steps)"
NO_SUBSCRIPTIONS = "the trace holds no subscription: there was none, or they were not recorded ([trace] steps)"


class Answer(NamedTuple):
    """What became of an event for one client, in a word and in a sentence."""

    verdict: Verdict
    text: str

    @property
    def reached(self) -> bool:
        return self.verdict == "delivered"


@dataclass
class ClientAt:
    """What a client had at one home at a moment."""

    home: str
    location: Location | None = None
    online: bool = True
    filters: dict[str, TraceRecord] = field(default_factory=dict)
    later: list[TraceRecord] = field(default_factory=list)


class Case:
    """One event and everything a trace says about it and about some clients.

    `brokers` are those whose trace was read, `recorded` the steps it holds: silence of others proves nothing.
    """

    def __init__(
        self,
        event_id: EventId,
        records: Iterable[TraceRecord],
        brokers: Iterable[str],
        recorded: Iterable[str] = STEPS,
    ) -> None:
        self.event_id = event_id
        self.records = list(records)
        self.brokers = frozenset(brokers)
        self.recorded = frozenset(recorded)
        self.steps = [record for record in self.records if record.event_id == event_id]
        self.published = next((record for record in self.steps if record.step == "published"), None)

    @property
    def reached(self) -> list[str]:
        """The clients it was delivered to; says nothing if the trace does not tell of deliveries."""
        return list(dict.fromkeys(str(record.client) for record in self.steps if record.step == "delivered"))

    @property
    def tells_deliveries(self) -> bool:
        """Whether the trace knows of deliveries at all."""
        return "delivered" in self.recorded

    @property
    def unread(self) -> list[str]:
        """Brokers the event had to do with, of which no trace was read."""
        named = dict.fromkeys([self.event_id.origin, *(record.peer for record in self.steps if record.peer)])
        return [broker for broker in named if broker not in self.brokers]

    def answer(self, client: str) -> Answer:
        """Why it did or did not reach this client."""
        mine = [record for record in self.steps if record.client == client and record.step != "published"]
        said = self._said(client, mine)
        if said is not None:
            return said
        if self.published is None:
            return Answer("unexplained", f"the trace does not say when {self.event_id} was published")
        if "subscribed" not in self.recorded:
            return Answer("unexplained", f"cannot tell: {NO_SUBSCRIPTIONS}")
        homes = clients_at(self.records, client, self.published.t_ms)
        if not homes:
            return Answer("unknown client", "the trace has no client of that name")
        answers = [self._by_rule(home, self.published, client) for home in homes]
        return min(answers, key=lambda answer: RANK.index(answer.verdict))

    # What the records say.

    def _said(self, client: str, mine: Sequence[TraceRecord]) -> Answer | None:
        for record in mine:
            if record.step == "delivered":
                return Answer("delivered", f"delivered by {record.broker}{self._after(record)}")
        for record in mine:
            if record.step == "dropped":
                return Answer("dropped", f"dropped by {record.broker}: {record.reason}")
        matched = [record for record in mine if record.step == "matched"]
        return self._undelivered(client, matched) if matched else None

    def _undelivered(self, client: str, matched: Sequence[TraceRecord]) -> Answer:
        """It matched a subscription of the client, and then?"""
        match = matched[0]
        home = match.peer or match.broker
        where = f"it matched {match.topic!r} at {match.broker}"
        if match.peer is not None:
            lost = self._lost(match.broker, home)
            if lost is not None:
                return Answer(lost.verdict, f"{where}, but {lost.text}")
        ended = [r for r in self.steps if r.step == "dropped" and r.client is None and r.broker == home]
        if ended:
            return Answer("dropped", f"{where}, but {home} dropped it: {ended[0].reason}")
        if not self.tells_deliveries:
            return Answer("unexplained", f"{where}; {NO_DELIVERIES}")
        for record in matched:
            taker = self._taker(_share_group(record.topic), client)
            if taker is not None:
                return Answer("shared", f"{where}, and {taker} of the same share group received it")
        state = next((at for at in clients_at(self.records, client, match.t_ms) if at.home == home), None)
        if state is not None and not state.online:
            return Answer("waiting", f"{where}; the client was offline, so it is queued in its session at {home}")
        return Answer("waiting", f"{where}; it is queued at {home} behind other events, or the trace ends too early")

    def _taker(self, group: str | None, client: str) -> str | None:
        if group is None:
            return None
        members = {r.client for r in self.steps if r.step == "matched" and _share_group(r.topic) == group}
        return next((other for other in self.reached if other in members and other != client), None)

    # What the rule says.

    def _by_rule(self, at: ClientAt, event: TraceRecord, client: str) -> Answer:
        if not at.filters:
            return Answer("no subscription", f"it had no subscription at {at.home}{_since(at, event)}")
        fitting = [(f, record) for f, record in at.filters.items() if fits(f, event.topic or "")]
        if not fitting:
            held = ", ".join(repr(one) for one in list(at.filters)[:5])
            text = f"none of its subscriptions matches {event.topic!r} ({held}){_since(at, event)}"
            return Answer("no such topic", text)
        place = None if event.lat is None or event.lon is None else Location(event.lat, event.lon)
        misses = {topic_filter: _outside(record.fence, place) for topic_filter, record in fitting}
        if all(misses.values()):
            text = "; ".join(f"{topic_filter!r}: the publisher {why}" for topic_filter, why in misses.items())
            return Answer("outside the subscription's fence", text)
        if event.fence is not None and not self.recorded & {"connected", "moved"}:
            return Answer("unexplained", "cannot tell: client locations were not recorded ([trace] steps)")
        why = _outside(event.fence, at.location)
        if why is not None:
            return Answer("outside the event's fence", f"the client {why}")
        if not at.online and not event.qos:
            return Answer("dropped", f"it was offline, and QoS 0 events are not queued ({at.home})")
        for topic_filter, miss in misses.items():
            taker = None if miss else self._taker(_share_group(topic_filter), client)
            if taker is not None:
                return Answer("shared", f"{taker} of the same share group received it")
        return self._late(at, client)

    def _late(self, at: ClientAt, client: str) -> Answer:
        """By the rule it should have been reached: what was late or lost?"""
        for record in self.steps:
            if record.step == "sent" and record.peer is not None:
                lost = self._lost(record.broker, record.peer)
                if lost is not None:
                    return lost
        seen = {r.broker: r.t_ms for r in reversed(self.steps) if r.step in ("published", "received")}
        for record in self.records:
            if record.step == "received" and record.client == client and _tells(record, at):
                behind_ms = record.t_ms - seen.get(record.broker, record.t_ms)
                if behind_ms > 0:
                    text = f"its {record.kind} reached {record.broker} {behind_ms:.1f} ms after the event"
                    return Answer("too late", text)
        ended = [record for record in self.steps if record.step == "dropped" and record.reason != "duplicate"]
        if ended:
            return Answer("dropped", f"{ended[-1].broker} dropped it: {ended[-1].reason}")
        if self.unread:
            return Answer(
                "unexplained", f"it should have been delivered; no trace was given for {', '.join(self.unread)}"
            )
        if not self.tells_deliveries:
            return Answer("unexplained", f"it should have been delivered; {NO_DELIVERIES}")
        return Answer("unexplained", "it should have been delivered, and the trace does not show what happened to it")

    def _lost(self, sender: str, receiver: str) -> Answer | None:
        """Whether the event was sent over a link and did not come out at the other end."""
        for record in self.steps:
            if record.step == "dropped" and record.broker == sender and record.peer == receiver:
                return Answer("dropped", f"{sender} could not send it to {receiver}: {record.reason}")
        if receiver not in self.brokers or "received" not in self.recorded:
            return None
        sent = sum(r.step == "sent" and (r.broker, r.peer) == (sender, receiver) for r in self.steps)
        received = sum(r.step == "received" and (r.broker, r.peer) == (receiver, sender) for r in self.steps)
        if received >= sent:
            return None
        return Answer("not arrived", f"{sender} sent it to {receiver}, where it has not arrived")

    def _after(self, record: TraceRecord) -> str:
        return "" if self.published is None else f" {record.t_ms - self.published.t_ms:.1f} ms after it was published"


def clients_at(records: Iterable[TraceRecord], client: str, t_ms: float) -> list[ClientAt]:
    """What a client had at each of its homes at a moment, from records in the order of time."""
    homes: dict[str, ClientAt] = {}
    for record in records:
        if record.client != client or record.peer is not None:
            continue
        at = homes.get(record.broker)
        if at is None:
            at = homes[record.broker] = ClientAt(record.broker)
        if record.t_ms > t_ms:
            if record.step == "subscribed":
                at.later.append(record)
            continue
        match record.step:
            case "connected":
                at.online, at.location = True, _location(record, at.location)
            case "moved":
                at.location = _location(record, None)
            case "subscribed" if record.topic is not None:
                at.filters[record.topic] = record
            case "unsubscribed" if record.topic is not None:
                at.filters.pop(record.topic, None)
            case "disconnected":
                at.online = False
                if record.reason == SESSION_ENDED:
                    at.filters, at.location = {}, None
    return list(homes.values())


def step_text(record: TraceRecord) -> str:
    """A step of an event in words."""
    match record.step:
        case "sent":
            return f"sent to {record.peer} ({record.reason})"
        case "received":
            return f"received from {record.peer} ({record.reason})"
        case "matched":
            home = "" if record.peer is None else f" at {record.peer}"
            return f"matched {record.topic} of {record.client}{home}"
        case "delivered":
            return f"delivered to {record.client}"
        case "dropped":
            whom = f" for {record.client or record.peer}" if record.client or record.peer else ""
            return f"dropped{whom}: {record.reason}"
    return f"{record.step} by {record.client}"


def _tells(record: TraceRecord, at: ClientAt) -> bool:
    """Whether a peer learns from this message what the client had."""
    if record.kind == "location":
        return _location(record, None) == at.location
    held = at.filters.get(record.topic or "")
    return held is not None and held.fence == record.fence


def _location(record: TraceRecord, otherwise: Location | None) -> Location | None:
    return otherwise if record.lat is None or record.lon is None else Location(record.lat, record.lon)


def _plain(topic_filter: str) -> str:
    """A filter without its share group and fence name."""
    levels = topic_filter.split("/")
    if levels[0] == "$share" and len(levels) > 2:
        levels = levels[2:]
    if levels[:2] == ["$geo", "from"] and len(levels) > 3:
        levels = levels[3:]
    return "/".join(levels)


def fits(topic_filter: str, topic: str) -> bool:
    """Whether a filter matches a topic, its share group and fence name apart."""
    return topic_matches(_plain(topic_filter), topic)


def _share_group(topic_filter: str | None) -> str | None:
    levels = (topic_filter or "").split("/")
    return "/".join(levels[1:]) if levels[0] == "$share" else None


def _outside(text: str | None, location: Location | None) -> str | None:
    """How a place misses a fence; None if it is inside or there is none."""
    if text is None:
        return None
    if location is None:
        return f"had no location, so it was not inside {text[:80]}"
    try:
        fence = parse_fence(text)
    except GeometryError as error:
        return f"cannot be compared with the fence {text[:80]!r}: {error}"
    if fence.contains(location):
        return None
    if isinstance(fence, Circle):
        away_km = distance_m(location, fence.center) / 1000.0
        return f"was {away_km:,.1f} km from the centre of a fence of {fence.radius_m / 1000.0:,.1f} km"
    return f"was at {location.lat:g},{location.lon:g}, outside {text[:80]}"


def _since(at: ClientAt, event: TraceRecord) -> str:
    soon = next((record for record in at.later if fits(record.topic or "", event.topic or "")), None)
    return "" if soon is None else f"; it subscribed to {soon.topic!r} {soon.t_ms - event.t_ms:.1f} ms later"
