"""The instruments measure what they say."""

import os
import time

import pytest
from bench.measure import BenchError, Figure, cpu_s, rss_bytes


def test_a_figure_is_the_median_with_its_extremes() -> None:
    figure = Figure.of([3.0, 1.0, 2.0])
    assert (figure.median, figure.low, figure.high, figure.repeats) == (2.0, 1.0, 3.0, 3)
    assert figure.spread == 0.5


def test_a_figure_of_nothing_is_refused() -> None:
    with pytest.raises(BenchError):
        Figure.of([])


def test_cpu_time_of_a_process_grows_with_its_work_and_not_with_its_sleep() -> None:
    before = cpu_s(os.getpid())
    spent = time.process_time() + 0.05
    while time.process_time() < spent:
        pass
    worked = cpu_s(os.getpid())
    time.sleep(0.05)
    assert 0.04 < worked - before < 0.5
    assert cpu_s(os.getpid()) - worked < 0.04


def test_memory_that_is_touched_is_resident() -> None:
    before = rss_bytes(os.getpid())
    held = b"x" * 30_000_000
    assert rss_bytes(os.getpid()) - before > 20_000_000
    assert held
