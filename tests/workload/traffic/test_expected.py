"""Who must, may and must not receive an event of a live run."""

import numpy as np
import pytest

from geomq.geo import Circle, Location
from geomq.workload.model import DEGREE, NO_FENCE
from geomq.workload.traffic.expected import Comparison, Pairs, Said, expected, judge

Row = tuple[float, int, float, float, float]
SETTLE_MS = 100.0


def said(rows: list[Row]) -> Said:
    """Actions from (time, client, latitude, longitude, radius in metres or a negative number)."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    t_ms, client, lat, lon, radius = (np.array(column, float) for column in columns)
    lat_e7, lon_e7 = (np.rint(each * DEGREE).astype(np.int32) for each in (lat, lon))
    radius_cm = np.where(radius < 0, NO_FENCE, np.rint(radius * 100)).astype(np.int32)
    return Said(t_ms, client.astype(np.int64), lat_e7, lon_e7, radius_cm)


def states_at(rows: list[Row], client: int, t_ms: float) -> list[Row | None]:
    """Every state of a client that could be in force while an event sent at `t_ms` is on its way."""
    mine = sorted((row for row in rows if row[1] == client), key=lambda row: row[0])
    timeline: list[Row | None] = [None, *mine]
    found = []
    for number, state in enumerate(timeline):
        since = -np.inf if state is None else state[0]
        until = timeline[number + 1][0] if number + 1 < len(timeline) else np.inf  # type: ignore[index]
        if since <= t_ms + SETTLE_MS and until > t_ms - SETTLE_MS:
            found.append(state)
    return found


def by_hand(events: list[Row], subscriptions: list[Row], locations: list[Row]) -> set[tuple[int, int, bool]]:
    pairs = set()
    for number, (t_ms, _, lat, lon, radius) in enumerate(events):
        place = Location(lat, lon)
        for client in {row[1] for row in subscriptions}:
            outcomes = [
                subscription is not None
                and (subscription[4] < 0 or Circle(Location(*subscription[2:4]), subscription[4]).contains(place))
                and (radius < 0 or (at is not None and Circle(place, radius).contains(Location(*at[2:4]))))
                for subscription in states_at(subscriptions, client, t_ms)
                for at in states_at(locations, client, t_ms)
            ]
            if any(outcomes):
                pairs.add((number, client, all(outcomes)))
    return pairs


def random_rows(random: np.random.Generator, count: int, *, no_fence: float) -> list[Row]:
    rows = []
    for _ in range(count):
        radius = -1.0 if random.random() < no_fence else round(random.uniform(0, 60_000), 2)
        lat, lon = (round(float(value), 7) for value in random.uniform(-0.5, 0.5, 2))
        rows.append((float(random.integers(0, 3000)), int(random.integers(0, 6)), lat, lon, radius))
    return sorted(rows)


@pytest.mark.parametrize("seed", range(8))
def test_the_kernel_agrees_with_the_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    events = random_rows(random, 40, no_fence=0.3)
    subscriptions, locations = random_rows(random, 30, no_fence=0.2), random_rows(random, 40, no_fence=1)
    found = expected(said(events), said(subscriptions), said(locations), settle_ms=SETTLE_MS)
    pairs = set(zip(found.event.tolist(), found.subscriber.tolist(), found.certain.tolist(), strict=True))
    assert pairs == by_hand(events, subscriptions, locations)
    assert len({certain for _, _, certain in pairs}) == 2


def test_nobody_expects_anything_without_events_or_subscriptions() -> None:
    some = said([(0.0, 1, 0.0, 0.0, -1.0)])
    assert len(expected(said([]), some, some, settle_ms=0).event) == 0
    assert len(expected(some, said([]), some, settle_ms=0).event) == 0


def test_the_judge_counts_what_is_lost_doubled_and_unexpected_by_home() -> None:
    pairs = Pairs(np.array([0, 0, 1, 1]), np.array([5, 6, 5, 6]), np.array([True, True, True, False]))
    # 5 gets event 0 twice and event 1 not at all; 6 gets event 0, and event 2 out of the blue.
    event, client = np.array([0, 0, 0, 2]), np.array([5, 5, 6, 6])
    found = judge(pairs, event, client, {5: 0, 6: 1})
    assert found == [
        Comparison(home=0, required=2, possible=0, received=1, lost=1, duplicated=1, unexpected=0),
        Comparison(home=1, required=1, possible=1, received=2, lost=0, duplicated=0, unexpected=1),
    ]
