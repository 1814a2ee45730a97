"""A moving mean of what probes say, and nothing of what cannot be."""

import pytest

from geomq.broker.peers.latency import Latency


def test_a_probe_counts_half_its_way_and_later_ones_move_the_mean() -> None:
    latency = Latency()
    assert latency.mean_ms is None
    assert latency.measure(20_000_000) == 10.0
    assert latency.mean_ms == 10.0
    assert latency.measure(120_000_000) == 60.0
    assert latency.mean_ms == pytest.approx(20.0)


@pytest.mark.parametrize("round_trip_ns", [-1, 600_000_000_000])
def test_what_cannot_be_is_not_measured(round_trip_ns: int) -> None:
    latency = Latency()
    assert latency.measure(round_trip_ns) is None
    assert latency.mean_ms is None
