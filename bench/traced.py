"""What it costs a broker to write its trace: the same loads with [trace] off, of clients only, and of everything."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.acked import make_pairs
from bench.brokers import GeoMQ
from bench.loads import SHAPES, Flow, Way
from bench.results import Row
from bench.stage import Stage, cpu_us_each, interleaved
from bench.swarm import V311, Swarm

PAYLOAD = 20
WAYS = {
    "off": "",
    "clients only": 'steps = ["connected", "disconnected", "moved", "subscribed", "unsubscribed"]',
    "everything": "",
}


def trace(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """QoS 0 in every way of writing, and QoS 1."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-trace-"))
        brokers: dict[str, GeoMQ] = {}
        for way, steps in WAYS.items():
            more = "" if way == "off" else f'[trace]\ndirectory = "{folder}/{len(brokers)}"\n{steps}\n'
            brokers[way] = stack.enter_context(GeoMQ(stage.core, more))
        shape = SHAPES[0]
        for writing in Way:
            load = f"QoS 0, {shape.name} {writing.value} {PAYLOAD} B"
            stage.say(f"trace {load}")
            flows = {way: Flow(broker.port, shape, PAYLOAD, way=writing) for way, broker in brokers.items()}
            yield _row(stage, load, brokers, {way: partial(flow.run, stage.seconds) for way, flow in flows.items()})
            for flow in flows.values():
                flow.close()
        load = f"QoS 1, 10-to-10 clean sessions {PAYLOAD} B"
        stage.say(f"trace {load}")
        swarms = {way: stack.enter_context(Swarm(broker.port)) for way, broker in brokers.items()}
        acking = {way: make_pairs(swarm, 10, each=1, version=V311, kept=False) for way, swarm in swarms.items()}
        yield _row(stage, load, brokers, {way: partial(one.run, stage.seconds) for way, one in acking.items()})


def _row(stage: Stage, load: str, brokers: dict[str, GeoMQ], work: dict[str, Callable[[], int]]) -> Row:
    runs: dict[str, Callable[[], float]] = {
        way: partial(cpu_us_each, brokers[way].pid, run) for way, run in work.items()
    }
    figures = interleaved(runs, stage.repeats)
    more = figures["everything"].median - figures["off"].median
    return Row("trace", load, "us CPU per delivery", figures, notes={"us more for everything": more})
