"""How long a message takes."""

import math

import pytest
from tests.routing.worlds import PLACES, federation_of

from geomq.geo import Location, distance_m
from geomq.routing.core.model import BrokerId
from geomq.sim.network import CLOUD, CLOUD_LOCATION, MS_PER_KM, Latencies, distance_latency_ms

AMS, BER, NYC, SYD = (BrokerId(name) for name in PLACES)


def test_latency_is_the_distance_in_whole_milliseconds() -> None:
    latencies = Latencies(federation_of())
    for a in (AMS, BER, NYC, SYD):
        for b in (AMS, BER, NYC, SYD):
            if a != b:
                km = distance_m(Location(*PLACES[a]), Location(*PLACES[b])) / 1000
                assert latencies(a, b) == math.ceil(km * 0.021048134571484346) == latencies(b, a)


def test_the_other_side_of_the_earth_is_some_four_hundred_milliseconds_away() -> None:
    assert distance_latency_ms(Location(0, 0), Location(0, 180)) == pytest.approx(20_015 * MS_PER_KM, abs=1)


def test_neighbours_are_a_millisecond_apart() -> None:
    assert distance_latency_ms(Location(1, 1), Location(1, 1)) == 1


def test_a_table_has_the_last_word() -> None:
    latencies = Latencies(federation_of(), given_ms={(AMS, BER): 77})
    assert latencies(AMS, BER) == 77
    assert latencies(BER, AMS) == distance_latency_ms(Location(*PLACES["ber"]), Location(*PLACES["ams"]))


def test_the_cloud_is_where_it_was_published_to_be_unless_told_otherwise() -> None:
    assert Latencies(federation_of())(AMS, CLOUD) == distance_latency_ms(Location(*PLACES["ams"]), CLOUD_LOCATION)
    assert Latencies(federation_of(), cloud=Location(*PLACES["ams"]))(AMS, CLOUD) == 1
