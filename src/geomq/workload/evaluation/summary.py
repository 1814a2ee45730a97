"""From a tally to results: messages by kind, latency and delay statistics, load per broker and link.

Owns what is called what in a result and how it follows from the counts. Exact: percentiles come from whole histograms.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomq.workload.evaluation import kernel_messages as km
from geomq.workload.evaluation import sent
from geomq.workload.evaluation.kernel_messages import Tally
from geomq.workload.evaluation.views import ViewTable

Counts = NDArray[np.int64]
PERCENTILES = (5, 25, 50, 75, 95, 99)
NAMES = {
    "flood_events": km.FLOOD_EVENTS,
    "flood_subscriptions": km.FLOOD_SUBSCRIPTIONS,
    "disgb_events": km.DISGB_EVENTS,
    "disgb_subscriptions": km.DISGB_SUBSCRIPTIONS,
    "dht": km.DHT,
    "grid_quorum": km.GRID_QUORUM,
    "broadcast_groups": km.BROADCAST_GROUPS,
}
ORACLE = "oracle"
CLAIRVOYANT = "clairvoyant"
BOUNDS = (CLAIRVOYANT, ORACLE)
"""What no strategy did: the least for one who knows the future, with telling who wants what, and without."""


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """What one strategy did. Links are (from, to) with the cloud last; histograms count by millisecond."""

    name: str
    event_links: Counts
    subscription_links: Counts
    delivery_links: Counts
    location_links: Counts
    control_links: Counts
    useful: int
    latency: Counts
    delay: Counts

    @property
    def links(self) -> Counts:
        told = self.delivery_links + self.location_links + self.control_links
        links: Counts = self.event_links + self.subscription_links + told
        return links

    @property
    def messages(self) -> dict[str, int]:
        return {
            "event": int(self.event_links.sum()),
            "subscription": int(self.subscription_links.sum()),
            "delivery": int(self.delivery_links.sum()),
            "location": int(self.location_links.sum()),
            "control": int(self.control_links.sum()),
        }

    @property
    def redundant(self) -> int:
        """Event and delivery messages that served no client."""
        return int(self.event_links.sum() + self.delivery_links.sum()) - self.useful

    def as_json(self, brokers: list[str]) -> dict[str, Any]:
        links = self.links
        return {
            "messages": {**self.messages, "total": int(links.sum())},
            "latency_ms": statistics(self.latency),
            "subscription_delay_ms": statistics(self.delay),
            "deliveries": int(self.latency.sum()),
            "redundant": self.redundant,
            "load": {
                name: {"sent": int(links[i].sum()), "received": int(links[:, i].sum())}
                for i, name in enumerate(brokers)
                if links[i].any() or links[:, i].any() or i < len(brokers) - 1
            },
        }


def statistics(histogram: Counts) -> dict[str, float | int | None]:
    """Mean, standard deviation and nearest-rank percentiles of a histogram by millisecond."""
    count = int(histogram.sum())
    if count == 0:
        return {"count": 0, "mean": None, "std": None, **{f"p{p}": None for p in PERCENTILES}, "max": None}
    ms = np.arange(len(histogram))
    total = sum(int(a) * int(b) for a, b in zip(ms, histogram, strict=True))
    squares = sum(int(a) * int(a) * int(b) for a, b in zip(ms, histogram, strict=True))
    mean = total / count
    variance = (squares * count - total * total) / (count * count)
    reached = np.cumsum(histogram)
    ranks = {f"p{p}": int(np.searchsorted(reached, -(-count * p // 100))) for p in PERCENTILES}
    return {
        "count": count,
        "mean": mean,
        "std": variance**0.5,
        **ranks,
        "max": int(np.flatnonzero(histogram)[-1]),
    }


def summarise(tally: Tally, table: ViewTable, *, learned: Collection[str] = ()) -> dict[str, StrategyResult]:
    """Results by strategy name, of those that learn the given ones."""
    makers = {
        "flood_events": _flood_events,
        "flood_subscriptions": _flood_subscriptions,
        "disgb_events": _disgb_events,
        "disgb_subscriptions": _disgb_subscriptions,
        "dht": _dht,
        "grid_quorum": _grid_quorum,
        "broadcast_groups": _broadcast_groups,
    }
    results = {}
    for name, make in makers.items():
        events, subscriptions, delay = make(tally, table)
        results[name] = _result(name, tally, table, events, subscriptions, delay)
    results |= {name: _sent(name, sent.NAMES[name], tally, table) for name in learned}
    if not table.paper:
        results[CLAIRVOYANT] = _clairvoyant(tally, table)
    results[ORACLE] = _oracle(tally, table)
    return results


def _result(
    name: str, tally: Tally, table: ViewTable, events: Counts, subscriptions: Counts, delay: Counts | None
) -> StrategyResult:
    number = NAMES[name]
    told = _links(table)
    told[:-1, :-1] = tally.told[number]
    delays = _delays(subscriptions, table) if delay is None else delay
    locations = _locations(name, tally, table)
    useful = int(tally.useful[number])
    none = _links(table)
    return StrategyResult(name, events, subscriptions, told, locations, none, useful, tally.delays[number], delays)


def _sent(name: str, number: int, tally: Tally, table: ViewTable) -> StrategyResult:
    """A strategy whose messages were counted one by one."""
    links = [_framed(tally.sent[number, kind], table) for kind in range(sent.KINDS)]
    return StrategyResult(
        name,
        links[sent.EVENT],
        links[sent.SUBSCRIPTION],
        links[sent.DELIVERY],
        links[sent.LOCATION],
        links[sent.CONTROL],
        int(tally.sent_useful[number]),
        tally.sent_delays[number],
        tally.sent_updates[number],
    )


def _oracle(tally: Tally, table: ViewTable) -> StrategyResult:
    """One message per event and remote home with a match: no strategy can send fewer."""
    none = _links(table)
    needed = int(tally.useful[km.FLOOD_EVENTS])
    links = _links(table)
    links[:-1, :-1] = tally.needed
    latency = tally.delays[km.FLOOD_EVENTS]
    return StrategyResult(ORACLE, links, none, none, none, none, needed, latency, _delays(none, table))


def _clairvoyant(tally: Tally, table: ViewTable) -> StrategyResult:
    """What it would take one who knows the future, and is told of interest all the same: see `clairvoyant.py`."""
    beyond, none = tally.sent[sent.CLAIRVOYANT], _links(table)
    events, told = _framed(tally.needed + beyond[sent.EVENT], table), _framed(beyond[sent.SUBSCRIPTION], table)
    useful, latency = int(tally.useful[km.FLOOD_EVENTS]), tally.delays[km.FLOOD_EVENTS]
    return StrategyResult(CLAIRVOYANT, events, told, none, none, none, useful, latency, _delays(told, table))


def _locations(name: str, tally: Tally, table: ViewTable) -> Counts:
    """Location updates between brokers; the published comparison leaves them out."""
    if table.paper:
        return _links(table)
    if name == "flood_subscriptions":
        return _to_all_others(tally.located, table)
    if name == "disgb_subscriptions":
        return _framed(tally.location_pairs, table)
    if name == "dht":
        return _framed(tally.topic_locations, table)
    if name == "grid_quorum":
        return _framed(tally.located[:, None] * _same_line(table), table)
    return _links(table)


Sent = tuple[Counts, Counts, Counts | None]


def _links(table: ViewTable) -> Counts:
    return np.zeros_like(table.latency, dtype=np.int64)


def _to_all_others(counts: Counts, table: ViewTable) -> Counts:
    links = _links(table)
    links[:-1, :-1] = counts[:, None]
    np.fill_diagonal(links, 0)
    return links


def _framed(pairs: Counts, table: ViewTable) -> Counts:
    links = _links(table)
    links[:-1, :-1] = pairs
    np.fill_diagonal(links, 0)
    return links


def _delays(links: Counts, table: ViewTable) -> Counts:
    """How long subscription updates took that were sent straight from home."""
    return np.bincount(table.latency.ravel(), weights=links.ravel(), minlength=int(table.latency.max()) + 1).astype(
        np.int64
    )


def _flood_events(tally: Tally, table: ViewTable) -> Sent:
    return _to_all_others(tally.published, table), _links(table), None


def _flood_subscriptions(tally: Tally, table: ViewTable) -> Sent:
    return _links(table), _to_all_others(tally.subscribed, table), None


def _disgb_events(tally: Tally, table: ViewTable) -> Sent:
    return _framed(tally.event_pairs, table), _links(table), None


def _disgb_subscriptions(tally: Tally, table: ViewTable) -> Sent:
    return _links(table), _framed(tally.subscription_pairs, table), None


def _dht(tally: Tally, table: ViewTable) -> Sent:
    return _framed(tally.topic_events, table), _framed(tally.topic_subscriptions, table), None


def _same_line(table: ViewTable) -> NDArray[np.bool_]:
    """Which brokers share a row or a column of the grid."""
    place = np.arange(len(table.leader))
    row, column = place // table.side, place % table.side
    near: NDArray[np.bool_] = (row[:, None] == row[None, :]) | (column[:, None] == column[None, :])
    return near


def _grid_quorum(tally: Tally, table: ViewTable) -> Sent:
    near = _same_line(table)
    return _framed(tally.published[:, None] * near, table), _framed(tally.subscribed[:, None] * near, table), None


def _broadcast_groups(tally: Tally, table: ViewTable) -> Sent:
    n = len(table.leader)
    cloud = n
    events, subscriptions = _links(table), _links(table)
    together = table.group[:, None] == table.group[None, :]
    events[:n, :n] = tally.published[:, None] * together
    np.fill_diagonal(events, 0)
    delay = np.zeros(int(max(table.to_cloud.max(), table.latency.max())) + 1, np.int64)
    to_leader = tally.subscribed if table.paper else tally.interested
    to_cloud = tally.subscribed if table.paper else tally.group_interested
    for broker in range(n):
        leader = int(table.leader[broker])
        events[leader, cloud] += tally.published[broker]
        subscriptions[leader, cloud] += to_cloud[broker]
        delay[table.to_cloud[broker]] += to_cloud[broker]
        if leader != broker:
            subscriptions[broker, leader] += to_leader[broker]
            delay[table.latency[broker, leader]] += to_leader[broker]
    woken = tally.relayed.sum(axis=0)
    for group, leader in enumerate(table.group_leader.tolist()):
        events[cloud, leader] += woken[group]
        for member in np.flatnonzero(table.group == group).tolist():
            if member != leader:
                events[leader, member] += woken[group]
    return events, subscriptions, delay
