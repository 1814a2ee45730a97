"""The numbers the page shows, held against answers that are known: live, in the trace and in its replay."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests import patience
from tests.broker.federated import configs, federation
from tests.dashboard.pages import dashboard, message

from geomq.broker.config.recording import Trace
from geomq.client import Client
from geomq.dashboard.local_feed import LocalFeed
from geomq.dashboard.recorded_files import read_views
from geomq.workload.traffic.trace_reading import everything, read_trace

EVENTS = 5
PARIS = (48.88, 2.36)


class Numbers(NamedTuple):
    """What a run came to."""

    published: int
    delivered: int
    messages: int


class Told:
    """Adds up what ticks tell, as the page does."""

    def __init__(self) -> None:
        self.published = 0
        self.events: dict[str, int] = {}
        self.messages = Counter[str]()

    def take(self, tick: dict[str, Any]) -> None:
        self.published += tick["published"]
        self.events |= {event["id"]: event["delivered"] for event in tick["events"]}
        for _, _, kind, count in tick["flows"]:
            self.messages[kind] += count

    @property
    def numbers(self) -> Numbers:
        return Numbers(self.published, sum(self.events.values()), self.messages["event"])


def told(ticks: Iterable[dict[str, Any]]) -> Numbers:
    adding = Told()
    for tick in ticks:
        adding.take(tick)
    return adding.numbers


def traced(directory: Path) -> Numbers:
    records = read_trace([directory], everything).records
    steps = Counter(record.step for record in records)
    sent = sum(record.step == "sent" and record.kind == "event" for record in records)
    return Numbers(steps["published"], steps["delivered"], sent)


def replayed(directory: Path) -> Numbers:
    (view,) = read_views(directory)
    return told(json.loads(view.body)["frames"])


async def flooded(brokers: int, directory: Path) -> Numbers:
    """Events for one client inside their fence and one outside, from a client that moves before each."""
    configured = {
        name: msgspec.structs.replace(config, trace=Trace(directory=str(directory)))
        for name, config in configs("flood_events", brokers=brokers).items()
    }
    async with federation(configured) as running, dashboard([LocalFeed(one) for one in running.values()]) as page:
        ports = [broker.port for broker in running.values()]
        async with (
            page.live() as socket,
            Client("127.0.0.1", ports[-1], client_id="inside", at=PARIS) as inside,
            Client("127.0.0.1", ports[-1], client_id="outside", at=(0.0, 0.0)) as outside,
            Client("127.0.0.1", ports[0], client_id="publisher") as publisher,
        ):
            adding = Told()
            while (await message(socket))["type"] == "world":
                pass  # from the first tick on, everything that happens is recorded
            await inside.subscribe("news")
            await outside.subscribe("news")
            for number in range(EVENTS):
                await publisher.move(40.0 + number, -83.0)
                await publisher.move(41.0 + number, -83.0)
                await publisher.publish("news", str(number), to=(*PARIS, 1_000), qos=1)
            while adding.numbers.delivered < EVENTS or adding.numbers.messages < (brokers - 1) * EVENTS:
                tick = await message(socket)
                if tick["type"] == "tick":
                    adding.take(tick)
    return adding.numbers


@pytest.mark.parametrize("brokers", [2, 3, 4])
def test_flooding_costs_one_message_for_each_other_broker_live_in_the_trace_and_in_its_replay(
    brokers: int, tmp_path: Path
) -> None:
    live = patience.run(flooded(brokers, tmp_path))
    assert live == Numbers(published=EVENTS, delivered=EVENTS, messages=(brokers - 1) * EVENTS)
    assert traced(tmp_path) == live
    assert replayed(tmp_path) == live
