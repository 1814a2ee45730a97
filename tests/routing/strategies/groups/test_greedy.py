"""The fixed grouping rule, against the published groups and a second, literal reading of the rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.routing.strategies.groups.groups_world import federation_of

from geomq.errors import ConfigError
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.greedy import computed_groups, distance_latency_ms, given_groups, greedy_groups

# The brokers of the published run with the population of each place in thousands, their weight.
PUBLISHED = {
    "Nanjing": (32.05, 118.78, 3679),
    "Brooklyn": (40.6501, -73.9496, 2629),
    "Kiev": (50.4334, 30.5166, 2709),
    "Barranquilla": (10.96, -74.8, 1798),
    "Haora": (22.5804, 88.3299, 4842),
    "Makkah": (21.43, 39.82, 1385),
    "Yulin": (22.63, 110.15, 1060),
    "Cali": (3.4, -76.5, 2254),
    "Munich": (48.1299, 11.575, 1275),
    "Chifeng": (42.27, 118.95, 1148),
    "Conakry": (9.5315, -13.6802, 1494),
    "Guayaquil": (-2.22, -79.92, 2514),
    "Daqing": (46.58, 125.0, 1594),
    "Pyongyang": (39.0194, 125.7547, 3300),
    "Isfahan": (32.7, 51.7, 1547),
    "Riverside": (33.9381, -117.3948, 2108),
    "Asuncion": (-25.2964, -57.6415, 1870),
    "Tel Aviv-Yafo": (32.08, 34.77, 3112),
    "Natal": (-5.78, -35.24, 1035),
    "San Jose": (9.935, -84.0841, 1284),
    "Luanda": (-8.8383, 13.2344, 5173),
    "Vancouver": (49.2734, -123.1216, 2313),
    "Athens": (37.9833, 23.7333, 3242),
    "Denver": (39.7621, -104.8759, 2876),
    "Calgary": (51.083, -114.08, 1110),
}


def test_the_published_brokers_fall_into_the_published_groups() -> None:
    names = list(PUBLISHED)
    lats, lons, weights = (np.array(column) for column in zip(*PUBLISHED.values(), strict=True))
    leaders = greedy_groups(distance_latency_ms(lats, lons), weights, 100.0)
    sizes = {names[leader]: int((leaders == leader).sum()) for leader in set(leaders.tolist())}
    assert sizes == {"Athens": 6, "Haora": 6, "Denver": 5, "Guayaquil": 4, "Natal": 3, "Luanda": 1}


@given(st.data())
def test_the_greedy_rule_is_what_its_words_say(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    near = data.draw(st.lists(st.integers(1, 9), min_size=n * n, max_size=n * n))
    weights = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    latency = np.array(near, dtype=float).reshape(n, n)
    latency = np.minimum(latency, latency.T)
    np.fill_diagonal(latency, 0.0)
    chosen: list[int] = []
    for broker in sorted(range(n), key=lambda b: (-weights[b], b)):
        if not [leader for leader in chosen if latency[broker][leader] <= 5]:
            chosen.append(broker)
    expected = [b if b in chosen else min(chosen, key=lambda x: (latency[b][x], x)) for b in range(n)]
    assert greedy_groups(latency, weights, 5.0).tolist() == expected


def test_no_brokers_are_no_groups() -> None:
    assert greedy_groups(np.empty((0, 0)), [], 5.0).tolist() == []


def test_groups_are_computed_from_the_places_of_a_federation() -> None:
    federation = federation_of(["a", "b", "c"])  # one degree of longitude apart: 3 ms
    assert computed_groups(federation, {"b": 2.0}, 3.0) == {"a": "b", "b": "b", "c": "b"}
    assert computed_groups(federation, {}, 3.0) == {"a": "a", "b": "a", "c": "c"}


def test_given_groups_name_leaders_and_members_and_the_rest_lead_themselves() -> None:
    federation = federation_of(["a", "b", "c"])
    assert given_groups(federation, {"b": ("a", "unknown"), "elsewhere": ("c",)}) == {"a": "b", "b": "b", "c": "c"}


def test_a_broker_in_two_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match="broker c is in two groups"):
        given_groups(federation_of(["a", "b", "c"]), {"a": ("c",), "b": (BrokerId("c"),)})
