"""Averages over the last minutes."""

from geomq.broker.operations.loads import Loads


def test_what_is_steady_is_reached_soonest_by_the_shortest_average() -> None:
    loads = Loads({"sockets": 0})
    for tick in range(1, 31):
        loads.take({"sockets": tick * 10}, 10.0)
    found = {name: float(value) for name, value in loads.values()}
    assert 59 < found["load/sockets/1min"] <= 60
    assert found["load/sockets/1min"] > found["load/sockets/5min"] > found["load/sockets/15min"] > 10


def test_what_is_over_fades_and_no_time_changes_nothing() -> None:
    loads = Loads({"sockets": 0})
    loads.take({"sockets": 60}, 60.0)
    before = dict(loads.values())
    loads.take({"sockets": 99}, 0.0)
    assert dict(loads.values()) == before
    assert before == {"load/sockets/1min": "37.93", "load/sockets/5min": "10.88", "load/sockets/15min": "3.87"}
    for _ in range(20):
        loads.take({"sockets": 60}, 60.0)
    assert dict(loads.values())["load/sockets/1min"] == "0.00"
