"""What a run cost and how long things took: message counts by kind, latencies, load. An observer."""

import math
from collections import Counter
from typing import Any

from geomq.routing.core.actions import Action
from geomq.routing.core.events import PeerSaid, RoutingEvent
from geomq.routing.core.messages import KINDS, ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.sim.engine import Observer, Origin
from geomq.sim.network import CLIENT_LATENCY_MS


class Statistics(Observer):
    """Counts that fit the tables of the papers."""

    def __init__(self, *, tail_from_ms: int | None = None) -> None:
        self.messages: Counter[str] = Counter()
        self.latency_ms: Counter[int] = Counter()
        self.subscription_delay_ms: Counter[int] = Counter()
        self.load: Counter[BrokerId] = Counter()
        self.links: Counter[tuple[BrokerId, BrokerId]] = Counter()
        self.redundant = 0
        self.tail_deliveries = 0
        self._tail_from_ms = tail_from_ms

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        self.messages[message.kind] += 1
        self.load[target] += 1
        self.links[source, target] += 1
        if message.kind == "subscription" and origin.client is not None:
            self.subscription_delay_ms[arrives_ms - origin.t_ms - CLIENT_LATENCY_MS] += 1

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        """An event forwarded to a broker that neither delivers nor forwards it was excess data."""
        if isinstance(event, PeerSaid) and isinstance(event.message, ForwardEvent) and not actions:
            self.redundant += 1

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.latency_ms[t_ms - published_ms] += 1
        if self._tail_from_ms is not None and published_ms >= self._tail_from_ms:
            self.tail_deliveries += 1

    @property
    def deliveries(self) -> int:
        return self.latency_ms.total()

    def summary(self) -> dict[str, Any]:
        """Plain data for JSON and tables."""
        return {
            "messages": {kind: self.messages[kind] for kind in KINDS} | {"total": self.messages.total()},
            "deliveries": self.deliveries,
            "quiet_tail_deliveries": self.tail_deliveries,
            "latency_ms": describe_histogram(self.latency_ms),
            "subscription_delay_ms": describe_histogram(self.subscription_delay_ms),
            "redundant": self.redundant,
            "load_max": max(self.load.values(), default=0),
        }


def describe_histogram(histogram: Counter[int]) -> dict[str, float | int]:
    """Mean, standard deviation and exact percentiles of counted whole numbers."""
    count = histogram.total()
    if not count:
        return {"count": 0}
    mean = sum(value * times for value, times in histogram.items()) / count
    variance = sum((value - mean) ** 2 * times for value, times in histogram.items()) / count
    described: dict[str, float | int] = {
        "count": count,
        "mean": round(mean, 3),
        "std": round(math.sqrt(variance), 3),
    }
    ordered = sorted(histogram.items())
    for name, share in (("min", 0.0), ("p50", 0.5), ("p75", 0.75), ("p99", 0.99), ("max", 1.0)):
        described[name] = _quantile(ordered, share * count)
    return described


def _quantile(ordered: list[tuple[int, int]], rank: float) -> int:
    """The smallest value with at least `rank` values at or below it."""
    below = 0
    for value, times in ordered:
        below += times
        if below >= rank:
            return value
    return ordered[-1][0]
