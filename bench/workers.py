"""What workers cost and bring: the same loads on a broker alone and on one with two workers, CPU of all processes.

No broker is kept on a core here, or workers could bring nothing. The load generator stays on its own, so on two cores a
broker alone has one for itself already, and the rate of one with workers is bounded by what the generator leaves.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.acked import PAYLOAD, make_pairs
from bench.brokers import Broker, GeoMQ
from bench.geo import Course, fenced
from bench.loads import Flow, Shape, Way
from bench.measure import Figure, cpu_s
from bench.places import make_world
from bench.results import Row, Target
from bench.stage import Stage
from bench.swarm import V311, Swarm, clock

ALONE, WITH = "alone", "two workers"
COST_MAX, SHARE_MAX, RATE_MIN = 1.2, 0.6, 1.5
PAIRS, FAN_OUT, FENCED, STEPS = 1_000, 1_000, 1_000, 12_000

Work = Callable[[float], int]
"""Load for so many seconds; the number of deliveries, or of events."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds a delivery, of the broker's process and of each worker, and deliveries a second."""

    broker: float
    workers: tuple[float, ...]
    rate: float

    @property
    def all(self) -> float:
        return self.broker + sum(self.workers)


def workers(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Every load on both brokers, in turn."""
    for load, prepare in LOADS.items():
        stage.say(f"workers {load}")
        with ExitStack() as stack:
            runs = {}
            for name, count in ((ALONE, 1), (WITH, 2)):
                broker = stack.enter_context(spread(count))
                runs[name] = partial(measure, broker, prepare(stack, broker.port), stage.seconds)
            found: dict[str, list[Cost]] = {name: [] for name in runs}
            for _ in range(stage.repeats):
                for name, run in runs.items():
                    found[name].append(run())
        yield _row(load, found)


@contextmanager
def spread(count: int) -> Iterator[Broker]:
    """A broker that may use every core."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        broker = GeoMQ(None, f"broker.workers = {count}").__enter__()
    finally:
        os.sched_setaffinity(0, mine)
    with ExitStack() as stack:
        stack.push(broker.__exit__)
        yield broker


def measure(broker: Broker, work: Work, seconds: float) -> Cost:
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    pids = [broker.pid, *map(int, children)]
    before, began = [cpu_s(pid) for pid in pids], clock()
    done = work(seconds)
    took = clock() - began
    each = [(cpu_s(pid) - spent) * 1e6 / done for pid, spent in zip(pids, before, strict=True)]
    return Cost(each[0], tuple(each[1:]), done / took)


def _row(load: str, found: dict[str, list[Cost]]) -> Row:
    figures = {name: Figure.of([cost.all for cost in costs]) for name, costs in found.items()}
    shares = [max(cost.workers) / sum(cost.workers) for cost in found[WITH]]
    rates = {name: median(cost.rate for cost in costs) for name, costs in found.items()}
    verdicts = (
        Target("times the CPU of a broker alone", COST_MAX, at_least=False).judge(
            figures[WITH].median / figures[ALONE].median
        ),
        Target("of the workers' CPU at the busier one", SHARE_MAX, at_least=False).judge(median(shares)),
        Target("times the rate", RATE_MIN).judge(rates[WITH] / rates[ALONE]),
    )
    notes = {"us of it in the broker's own process": median(cost.broker for cost in found[WITH])}
    return Row("workers", load, "us CPU of all processes", figures, verdicts, notes)


def _pairs(stack: ExitStack, port: int) -> Work:
    return make_pairs(stack.enter_context(Swarm(port)), PAIRS, each=1, version=V311, kept=False).run


def _fan_out(way: Way, stack: ExitStack, port: int) -> Work:
    flow = Flow(port, Shape(f"1-to-{FAN_OUT}", 1, FAN_OUT, 1, 20), PAYLOAD, way=way)
    stack.callback(flow.close)
    return flow.run


def _fenced(stack: ExitStack, port: int) -> Work:
    swarm = stack.enter_context(Swarm(port))
    course = Course(swarm, fenced(swarm, make_world(FENCED, STEPS)))
    return lambda seconds: course.run(seconds, STEPS // 8)


LOADS: dict[str, Callable[[ExitStack, int], Work]] = {
    f"1-to-{FAN_OUT} unbatched {PAYLOAD} B": partial(_fan_out, Way.UNBATCHED),
    f"1-to-{FAN_OUT} one at a time {PAYLOAD} B": partial(_fan_out, Way.ONE_AT_A_TIME),
    f"{PAIRS:,} pairs QoS 1, one in flight {PAYLOAD} B": _pairs,
    f"{FENCED:,} subscribers, 10 inside the fence, a move each": _fenced,
}
