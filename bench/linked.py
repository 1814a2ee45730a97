"""What an event costs that crosses the link between two brokers, beside one delivered where it was published.

The CPU of both brokers is counted, per delivered message. Each broker has a core; the second shares its with the load
generator, which costs it time. So what is local is delivered by each of the two, under the same strategy, and the
crossing is compared with their mean; with the first alone where nothing is local at the second.

The link is a batch's business: 100 publishers share it, as clients of a broker do; a single one is measured, too,
without a target. The same loads go over the bridge between two Mosquittos, the way brokers are linked elsewhere, and
through two bare relays in C, to know what the kernel alone costs.

What is local and what crosses is measured in turn, and the ratio is the median of the ratios of each turn.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from operator import truediv
from statistics import mean, median

from bench.acked import PAIRS, PAYLOAD, make_pairs
from bench.acking import Acking
from bench.brokers import CROSSING, Broker, GeoMQ, Mosquitto, Relay
from bench.loads import MIXED, PAYLOADS, SHAPES, Flow, Shape, Way
from bench.measure import BenchError, Figure, cpu_s
from bench.results import Row, Target
from bench.stage import Stage
from bench.swarm import V311, Swarm, connect, publish, subscribe
from geomq.broker.local_federation import free_ports

STRATEGIES = ("disgb_subscriptions", "adaptive", "disgb_events", "flood_events", "dht")
ONE_CENTRE = ("dht",)
"""Here one of the two brokers matches all these events: what is said and heard at the other crosses the link twice."""
TIMES_LOCAL_MAX = 2.0
TURNS = 4
"""Local and crossing loads are measured by turns, so many for each measurement of other loads, and shorter: what else
the machine does is then the same for both."""
LINKED_S_MAX = 20.0
LOCAL, OVER = "local", "over a link"
ONE, MANY = SHAPES[0], SHAPES[3]
FEW_EACH = replace(MANY, name="100-to-100, 10 each", batch=10)
LOADS = (
    *((shape, payload, Way.BATCHED) for shape in (FEW_EACH, MANY) for payload in PAYLOADS),
    (MIXED, PAYLOADS[0], Way.BATCHED),
    (replace(MIXED, name="1-to-1 mixed, 1000", batch=1000), PAYLOADS[0], Way.BATCHED),
    (ONE, PAYLOADS[0], Way.BATCHED),
    (ONE, PAYLOADS[0], Way.UNBATCHED),
    (replace(FEW_EACH, name="100-to-100 fenced, 10 each", fenced=True), PAYLOADS[0], Way.BATCHED),
    (ONE, PAYLOADS[0], Way.ONE_AT_A_TIME),
)

_MEMBER = """
broker.name = "{me}"
broker.location = "{place}"
routing.strategy = "{strategy}"
federation.host = "127.0.0.1"
federation.port = {port}
[[peers]]
name = "{other}"
address = "127.0.0.1:{other_port}"
location = "{other_place}"
"""
_PLACES = {"paris": "48.88,2.36", "columbus": "39.96,-83.0"}


Brokers = tuple[Broker, Broker]
Measure = Callable[[float], float]
"""CPU microseconds per delivered message in so many seconds."""
Make = Callable[[ExitStack], list[Measure]]
"""Prepares a load: what is local, and last what crosses."""


def link(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """All loads, over a link and locally: bare relays, bridged Mosquittos, GeoMQ under several strategies."""
    if stage.among("relay"):
        for shape, payload, way in LOADS:
            if not shape.fenced:
                yield _row(
                    stage, "bare relays", _name(shape, payload, way), partial(_relayed, stage, shape, payload, way)
                )
    over_bridge: dict[str, float] = {}
    if stage.among("mosquitto"):
        with bridged(stage.core, stage.load_core) as brokers:
            for load, make, _ in _loads(brokers, plain_only=True):
                row = _row(stage, "bridged Mosquittos", load, make)
                over_bridge[load] = row.figures[OVER].median
                yield row
    for strategy in STRATEGIES[: 1 if stage.quick else None]:
        with linked(stage.core, stage.load_core, strategy) as brokers:
            for load, make, has_target in _loads(brokers, first_only=strategy in ONE_CENTRE):
                yield _row(stage, strategy, load, make, has_target=has_target, over_bridge=over_bridge.get(load))


def _loads(brokers: Brokers, *, first_only: bool = False, plain_only: bool = False) -> Iterator[tuple[str, Make, bool]]:
    """All loads on two linked brokers: how each is called, how to make it, and whether it has a target."""
    for shape, payload, way in LOADS:
        if not (plain_only and shape.fenced):
            make = partial(_flows, brokers, shape, payload, way, first_only)
            yield _name(shape, payload, way), make, shape.publishers > 1
    yield f"100-to-100 QoS 1, 10 in flight {PAYLOAD} B", partial(_pairs, brokers, first_only), True


def _name(shape: Shape, payload: int, way: Way) -> str:
    return f"{shape.name} {way.value} {payload} B"


@contextmanager
def linked(core: int | None, other_core: int | None, strategy: str) -> Iterator[Brokers]:
    """Two brokers of a federation."""
    ports = dict(zip(_PLACES, free_ports(len(_PLACES)), strict=True))
    made = []
    for on, me, other in ((core, "paris", "columbus"), (other_core, "columbus", "paris")):
        more = _MEMBER.format(
            me=me,
            place=_PLACES[me],
            strategy=strategy,
            port=ports[me],
            other=other,
            other_port=ports[other],
            other_place=_PLACES[other],
        )
        made.append(GeoMQ(on, more))
    with made[0] as here, made[1] as there:
        _await_link(here, there)
        yield here, there


@contextmanager
def bridged(core: int | None, other_core: int | None) -> Iterator[Brokers]:
    """Two Mosquittos, the first with a bridge to the second."""
    with Mosquitto(other_core) as there, Mosquitto(core, there.port) as here:
        _await_link(here, there)
        yield here, there


def _await_link(here: Broker, there: Broker) -> None:
    """Publish until something gets through."""
    with Swarm(there.port) as far, Swarm(here.port) as near:
        listening = far.join([connect("await-s")])
        far.ask(listening, [subscribe(f"{CROSSING}/await")], 0x90)
        (speaking,) = near.join([connect("await-p")])
        listening[0].setblocking(False)
        until = time.monotonic() + LINKED_S_MAX
        while time.monotonic() < until:
            speaking.sendall(publish(f"{CROSSING}/await", b"x"))
            time.sleep(0.05)
            try:
                if listening[0].recv(1 << 16):
                    time.sleep(0.5)
                    return
            except BlockingIOError:
                continue
    raise BenchError("the two brokers never linked")


def _flows(brokers: Brokers, shape: Shape, payload: int, way: Way, first_only: bool, stack: ExitStack) -> list[Measure]:
    """The same load at each broker, or the first only, and across the link, on topics of its own."""
    (here, there), (near, far) = brokers, _PLACES.values() if shape.fenced else ("", "")
    flows: list[Measure] = []
    for name, published, delivered, place in (
        ("near", here, here, near),
        ("far", there, there, far),
        ("to", here, there, far),
    ):
        if first_only and name == "far":
            continue
        load = replace(shape, name=f"{name}/{shape.name}")
        flow = Flow(delivered.port, load, payload, way=way, published_at=published.port, place=place)
        stack.callback(flow.close)
        flows.append(partial(_cpu_us_each, brokers, flow))
        time.sleep(0.2)
    return flows


def _relayed(stage: Stage, shape: Shape, payload: int, way: Way, stack: ExitStack) -> list[Measure]:
    """The same through one relay on each core, and through two."""
    near, far, last = (stack.enter_context(Relay(core)) for core in (stage.core, stage.load_core, stage.load_core))
    first = stack.enter_context(Relay(stage.core, last.port))
    flows: list[Measure] = []
    for relays in ((near,), (far,), (first, last)):
        flow = Flow(relays[-1].port, shape, payload, way=way, published_at=relays[0].port)
        stack.callback(flow.close)
        flows.append(partial(_cpu_us_each, relays, flow))
    return flows


def _pairs(brokers: Brokers, first_only: bool, stack: ExitStack) -> list[Measure]:
    near, far = (stack.enter_context(Swarm(broker.port)) for broker in brokers)
    make = partial(make_pairs, pairs=PAIRS, each=10, version=V311, kept=False)
    flows = [
        make(near, name="near"),
        *(() if first_only else (make(far, name="far"),)),
        make(far, others=near, name="to"),
    ]
    time.sleep(0.5)
    return [partial(_cpu_us_each, brokers, flow) for flow in flows]


def _row(
    stage: Stage, who: str, load: str, make: Make, *, has_target: bool = False, over_bridge: float | None = None
) -> Row:
    """`over_bridge` is what two Mosquittos need for what crosses."""
    stage.say(f"link {who}, {load}")
    with ExitStack() as stack:
        measures = make(stack)
        turns = [[measure(stage.seconds / TURNS) for measure in measures] for _ in range(TURNS * stage.repeats)]
    local, crossing = [mean(locally) for *locally, _ in turns], [crossing for *_, crossing in turns]
    figures = {LOCAL: Figure.of(local), OVER: Figure.of(crossing)}
    times = median(map(truediv, crossing, local))
    notes = {} if over_bridge is None else {"x cheaper than bridged Mosquittos": over_bridge / figures[OVER].median}
    verdict = Target("times the local cost", TIMES_LOCAL_MAX, at_least=False).judge(times)
    if not has_target:
        notes = {verdict.what: times, **notes}
    return Row("link", f"{who}, {load}", "us CPU per delivery", figures, (verdict,) if has_target else (), notes)


def _cpu_us_each(brokers: tuple[Broker, ...], flow: Flow | Acking, seconds: float) -> float:
    before = sum(cpu_s(broker.pid) for broker in brokers)
    done = flow.run(seconds)
    return (sum(cpu_s(broker.pid) for broker in brokers) - before) * 1e6 / done
