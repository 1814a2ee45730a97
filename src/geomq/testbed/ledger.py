"""What was promised and what was kept: judges a run from its records alone, after it is over.

An event is promised once it is acknowledged with QoS 1 or 2. It must then reach every receiver whose subscription it
matches by topic and by both fences; nobody else may get it; with QoS 2 nobody may get it twice. Events of one sender,
all on one topic, come first in the order in which they were published.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from geomq.errors import DataError
from geomq.geo import parse_fence, parse_location
from geomq.mqtt.codec.topics import topic_matches

EXAMPLES_MAX = 5
IDLE_BYTES_PER_S_MAX = 20_000.0
"""Pings, acknowledgements and announcements need far fewer; events that go round and round, far more."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A receiver says what it wants."""

    receiver: str
    topic_filter: str
    at: str
    fence: str | None
    qos: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A broker took responsibility for an event."""

    event: str
    topic: str
    at: str
    fence: str | None
    qos: int
    t_ms: float


@dataclass(frozen=True, slots=True)
class Received:
    """A receiver got an event."""

    event: str
    receiver: str
    topic: str
    qos: int
    t_ms: float
    dup: bool = False


@dataclass(frozen=True, slots=True)
class Connected:
    """A receiver was let in, with the session it had or with a new one."""

    receiver: str
    broker: str
    session_present: bool
    t_ms: float


@dataclass(frozen=True, slots=True)
class Healed:
    """From here on nothing was disturbed any more, or until it was healed once more."""

    t_ms: float


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing was published any more, but so many bytes a second still went over the busiest link."""

    bytes_per_s: float


Entry = Subscribed | Acknowledged | Received | Connected | Healed | Quiet
KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in get_args(Entry)}


def write_entries(path: Path, entries: Iterable[Entry]) -> None:
    with path.open("w") as file:
        for entry in entries:
            file.write(json.dumps({"kind": type(entry).__name__, **asdict(entry)}) + "\n")


def read_entries(path: Path) -> Iterator[Entry]:
    with path.open() as file:
        for number, line in enumerate(file, 1):
            try:
                fields: dict[str, Any] = json.loads(line)
                yield KINDS[fields.pop("kind")](**fields)
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{path}: line {number} is not a record of a run") from None


@dataclass(slots=True)
class Judgement:
    """Numbers of (event, receiver) pairs, with a few examples of what went wrong.

    `recovered` came only after everything was healed, the latest of them `converged_s` after it; `repeated` are QoS 1
    events that came more than once, as they may. `started_anew` are QoS 2 events that came again because a client began
    a new session while its old one could not be reached. `out_of_order` are events that came for the first time after
    a later one of the same sender. `circling` is 1 if links stayed busy with nothing left to do.
    """

    promised: int = 0
    kept: int = 0
    lost: int = 0
    recovered: int = 0
    repeated: int = 0
    duplicated: int = 0
    started_anew: int = 0
    out_of_order: int = 0
    unexpected: int = 0
    circling: int = 0
    converged_s: float = 0.0
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.unexpected or self.circling)

    def note(self, what: str, example: str) -> None:
        setattr(self, what, getattr(self, what) + 1)
        found = self.examples.setdefault(what, [])
        if len(found) < EXAMPLES_MAX:
            found.append(example)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def wanted(event: Acknowledged, by: Subscribed) -> bool:
    """The one definition of delivered: topic, subscription check, event check."""
    if not topic_matches(by.topic_filter, event.topic):
        return False
    if by.fence is not None and not parse_fence(by.fence).contains(parse_location(event.at)):
        return False
    return event.fence is None or parse_fence(event.fence).contains(parse_location(by.at))


def judge(entries: Iterable[Entry]) -> Judgement:
    """Hold what was received against what was promised."""
    receivers: list[Subscribed] = []
    promised: dict[str, Acknowledged] = {}
    received: dict[tuple[str, str], list[Received]] = {}
    connected: dict[str, list[Connected]] = {}
    healed: list[float] = []
    verdict = Judgement()
    for entry in entries:
        if isinstance(entry, Subscribed):
            receivers.append(entry)
        elif isinstance(entry, Acknowledged):
            promised[entry.event] = entry
        elif isinstance(entry, Received):
            received.setdefault((entry.event, entry.receiver), []).append(entry)
        elif isinstance(entry, Connected):
            connected.setdefault(entry.receiver, []).append(entry)
        elif isinstance(entry, Healed):
            healed.append(entry.t_ms)
        elif entry.bytes_per_s > IDLE_BYTES_PER_S_MAX:
            verdict.note("circling", f"{entry.bytes_per_s:.0f} bytes a second")
    expected = _expected(promised, receivers)
    for pair, qos in expected.items():
        verdict.promised += 1
        healed_ms = _healed_after(healed, promised[pair[0]].t_ms)
        _judge_pair(verdict, received.get(pair, []), pair, qos, healed_ms, connected.get(pair[1], []))
    for pair in received:
        if pair not in expected:
            verdict.note("unexpected", f"{pair[0]} at {pair[1]}")
    _judge_order(verdict, received)
    return verdict


def _expected(promised: dict[str, Acknowledged], receivers: list[Subscribed]) -> dict[tuple[str, str], int]:
    """Who must get what, with which QoS. Senders stand still, so their events share one answer."""
    answers: dict[tuple[str, str, str | None, Subscribed], bool] = {}
    expected: dict[tuple[str, str], int] = {}
    for event in promised.values():
        for receiver in receivers:
            alike = (event.topic, event.at, event.fence, receiver)
            if alike not in answers:
                answers[alike] = wanted(event, receiver)
            if answers[alike]:
                expected[event.event, receiver.receiver] = min(event.qos, receiver.qos)
    return expected


def _healed_after(healed: list[float], t_ms: float) -> float:
    """When everything was healed first after this moment; the last time, if it was not any more."""
    return healed[min(bisect_left(healed, t_ms), len(healed) - 1)] if healed else float("inf")


def _judge_pair(
    verdict: Judgement,
    received: list[Received],
    pair: tuple[str, str],
    qos: int,
    healed_ms: float,
    connected: list[Connected],
) -> None:
    example = f"{pair[0]} at {pair[1]}"
    if not received:
        verdict.note("lost", example)
        return
    verdict.kept += 1
    first, *again = received
    if first.t_ms > healed_ms:
        verdict.recovered += 1
        verdict.converged_s = max(verdict.converged_s, (first.t_ms - healed_ms) / 1000.0)
    if not again:
        return
    if qos != 2:
        verdict.note("repeated", f"{example}, {len(received)} times")
    elif all(_began_anew(first, each, connected) for each in again):
        verdict.note("started_anew", f"{example}, {len(received)} times")
    else:
        verdict.note("duplicated", f"{example}, {len(received)} times")


def _began_anew(first: Received, again: Received, connected: list[Connected]) -> bool:
    """Whether an event may have come again because the client got a new session. What the old one had sent and not
    seen answered follows with the DUP flag; and what came in the new one comes in the old one, too, if the client
    returns to the broker that has it."""
    for before, anew in pairwise(connected):
        if anew.session_present:
            continue
        if again.dup and first.t_ms < anew.t_ms < again.t_ms:
            return True
        returns = (each for each in connected if each.session_present and each.broker == before.broker)
        if anew.t_ms < first.t_ms and any(first.t_ms < each.t_ms < again.t_ms for each in returns):
            return True
    return False


def _judge_order(verdict: Judgement, received: dict[tuple[str, str], list[Received]]) -> None:
    """Events are called by their sender and a number that grows."""
    latest: dict[tuple[str, str], int] = {}
    for event, receiver in received:
        sender, _, number = event.rpartition(":")
        if not number.isdecimal():
            continue
        stream = sender, receiver
        if int(number) < latest.get(stream, 0):
            verdict.note("out_of_order", f"{event} at {receiver} after {latest[stream]}")
        latest[stream] = max(int(number), latest.get(stream, 0))
