"""Topologies in which bridged brokers loop or duplicate: here every event arrives exactly once, at every QoS.

Two brokers linked both ways, three all linked with each other, five or six in a ring. Every broker has a publisher and
a subscriber whose filters overlap, so that an event that comes back, by any way, would be seen twice.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.broker.federated import until
from tests.broker.real_clients import RealClient, close_all, join

from geomq.broker.config.settings import Config
from geomq.broker.local_federation import LocalFederation, Site, local_configs
from geomq.geo import Location
from geomq.routing.core.seen import SeenEvents
from geomq.routing.strategies.registry import STRATEGIES

pytestmark = pytest.mark.anyio

SITES = [Site(f"b{number}", Location(10.0 * number, 20.0 * number)) for number in range(6)]
FLOODING = [name for name in STRATEGIES if name not in ("single", "mesh", "broadcast_groups")]


def ring(brokers: int) -> list[tuple[str, str]]:
    return [(f"b{number}", f"b{(number + 1) % brokers}") for number in range(brokers)]


QUICK = {"announce_ms": 200}
EACH = 5

CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    **{f"pair {name}": (2, name, {}) for name in FLOODING},
    **{f"triangle {name}": (3, name, {}) for name in FLOODING},
    "pair mesh": (2, "mesh", QUICK),
    "triangle mesh": (3, "mesh", QUICK),
    "five linked grid_quorum": (5, "grid_quorum", {}),
    "square grid_quorum that notifies twice": (4, "grid_quorum", {"notify_twice": True}),
    "pair broadcast_groups, two groups": (
        2,
        "broadcast_groups",
        {"formation": "fixed", "groups": {"b0": [], "b1": []}},
    ),
    "triangle broadcast_groups, one group": (
        3,
        "broadcast_groups",
        {"formation": "fixed", "groups": {"b0": ["b1", "b2"]}},
    ),
    "ring of five mesh": (5, "mesh", QUICK | {"links": ring(5), "redundancy": 1}),
    "ring of five mesh, redundant": (5, "mesh", QUICK | {"links": ring(5), "redundancy": 2}),
    "ring of six mesh, redundant": (6, "mesh", QUICK | {"links": ring(6), "redundancy": 2}),
    "five linked disgb_events": (5, "disgb_events", {}),
    "five linked adaptive": (5, "adaptive", {}),
    "five linked digests": (5, "digests", {}),
}


async def settled(publishers: list[RealClient], subscribers: list[RealClient]) -> None:
    """Publish until what was published last has reached everybody: then everybody knows whom to tell."""
    for attempt in range(150):
        probes = {f"probe {attempt} of {publisher.name}".encode() for publisher in publishers}
        for publisher, probe in zip(publishers, sorted(probes), strict=True):
            publisher.publish("t/1", probe)
        await asyncio.sleep(0.1)
        if all(probes <= subscriber.got.keys() for subscriber in subscribers):
            return
    raise AssertionError("the brokers never agreed")


async def run(configs: dict[str, Config], brokers: int) -> None:
    async with LocalFederation(configs) as running:
        await until(lambda: running.linked, seconds=30)
        ports = [running.brokers[site.name].port for site in SITES[:brokers]]
        publishers = [await join(port, f"p{number}") for number, port in enumerate(ports)]
        subscribers = [await join(port, f"s{number}") for number, port in enumerate(ports)]
        try:
            for subscriber in subscribers:
                for topic_filter in ("t/#", "t/+", "t/1"):
                    await subscriber.subscribe(topic_filter, qos=2)
            await settled(publishers, subscribers)
            due = Counter[bytes]()
            for number in range(EACH):
                for publisher in publishers:
                    for qos in (0, 1, 2):
                        payload = f"event {number} of {publisher.name}, QoS {qos}".encode()
                        due[payload] += 1
                        publisher.publish("t/1", payload, qos=qos)
            await until(lambda: all(due.keys() <= one.got.keys() for one in subscribers), seconds=30)
            await asyncio.sleep(0.3)
            for subscriber in subscribers:
                events = Counter({payload: n for payload, n in subscriber.got.items() if payload.startswith(b"event")})
                assert events == due
                assert set(subscriber.got.values()) == {1}
        finally:
            close_all([*publishers, *subscribers])


@pytest.mark.parametrize("case", CASES)
async def test_every_event_arrives_exactly_once(case: str) -> None:
    brokers, strategy, options = CASES[case]
    configs = local_configs(SITES[:brokers], strategy, options)
    assert len(configs) >= brokers
    await run(configs, brokers)


async def test_the_check_sees_events_that_are_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: brokers do not recognise events they had."""
    monkeypatch.setattr(SeenEvents, "first", lambda _self, _event_id: True)
    monkeypatch.setattr(SeenEvents, "unseen", lambda _self, _event_id, matches: matches)
    brokers, strategy, options = CASES["ring of six mesh, redundant"]
    with pytest.raises(AssertionError, match=r"QoS \d': \d"):
        await run(local_configs(SITES[:brokers], strategy, options), brokers)
