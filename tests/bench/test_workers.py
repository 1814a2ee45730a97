"""The loads for workers run on a real broker, and count every process of it."""

from contextlib import ExitStack

import pytest
from bench.workers import LOADS, measure, spread


@pytest.mark.parametrize("count", [1, 2])
def test_all_processes_of_a_broker_are_counted(count: int) -> None:
    load = next(name for name in LOADS if "unbatched" in name)
    with spread(count) as broker, ExitStack() as stack:
        cost = measure(broker, LOADS[load](stack, broker.port), 0.05)
        assert len(cost.workers) == (0 if count == 1 else count)
        assert cost.all > cost.broker - 1e-9
        assert all(each > 0 for each in (cost.broker, cost.rate, *cost.workers))
