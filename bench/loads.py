"""QoS 0 loads: one or many publishers, one or many subscribers, and three ways of writing; and ping-pong.

A round is what the publishers write before they wait until everything has arrived. Batched, one write carries a
publisher's whole round. Unbatched, the round is the same, but each PUBLISH is a write of its own. One at a time, a
publisher's round is a single PUBLISH, so no two of one client ever arrive together: that costs the kernel more than the
broker, and a bare relay beside the brokers tells how much.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import cycle

from bench.measure import BenchError
from bench.results import Row, Target, Verdict, cheaper
from bench.stage import Stage, cpu_us_each, interleaved
from bench.swarm import V5, V311, Swarm, clock, connect, publish, subscribe
from geomq.mqtt.codec.cutter import body_bounds
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import Properties

PAYLOADS = (20, 1000)
AT_LEAST_AMQTT = 10.0
PING_PONG_SHARE = 0.9


class Way(Enum):
    """How publishers write."""

    ONE_AT_A_TIME = "one at a time"
    UNBATCHED = "unbatched"
    BATCHED = "batched"


AT_LEAST_MOSQUITTO = {Way.UNBATCHED: 1.2, Way.BATCHED: 5.0}


@dataclass(frozen=True, slots=True)
class Shape:
    """Who talks to whom. `senders` write `batch` each in a round: so few that no subscriber's buffer overflows."""

    name: str
    publishers: int
    subscribers: int
    senders: int
    batch: int
    mixed: bool = False
    fenced: bool = False

    def topic(self, publisher: int) -> str:
        return f"bench/{self.name}/{publisher}"

    def topic_filter(self, subscriber: int) -> str:
        if self.mixed:
            return f"bench/{self.name}/+"
        if self.publishers == self.subscribers:
            return self.topic(subscriber)
        return self.topic(0) if self.publishers == 1 else f"bench/{self.name}/+"

    @property
    def fan_out(self) -> int:
        return self.subscribers if self.publishers == 1 else 1

    @property
    def version(self) -> int:
        return V5 if self.fenced else V311

    def batch_of(self, publisher: int, payload: int, count: int, place: str) -> list[bytes]:
        """What a publisher sends at once; mixed, one topic and length never follows itself."""
        if self.fenced:
            fence = Properties(user_properties=(("geo-fence", f"geo:{place};u=2000"),))
            return [encode(Publish(self.topic(publisher), b"x" * payload, properties=fence), V5)] * count
        if self.mixed:
            return [publish(self.topic(i % 10), b"x" * (payload - 4 + i % 7)) for i in range(count)]
        return [_padded(self, publisher, payload)] * count


SHAPES = (
    Shape("1-to-1", 1, 1, 1, 100),
    Shape("1-to-100", 1, 100, 1, 100),
    Shape("100-to-1", 100, 1, 10, 50),
    Shape("100-to-100", 100, 100, 100, 50),
)
MIXED = Shape("1-to-1 mixed", 1, 1, 1, 100, mixed=True)
"""Ten topics and seven lengths in turn: nothing for a broker to recognise."""


class Flow:
    """One load on one broker, or published at another: rounds of writes, and how many bytes each brings.

    Fenced, the subscribers are at `place`, and there the events matter.
    """

    def __init__(
        self,
        port: int,
        shape: Shape,
        payload: int,
        *,
        way: Way = Way.BATCHED,
        published_at: int | None = None,
        place: str = "",
    ) -> None:
        self._swarm = swarm = Swarm(port)
        self._others = others = swarm if published_at is None else Swarm(published_at)
        name = f"{shape.name}-{payload}-{way.value}"
        alone = way is Way.ONE_AT_A_TIME
        batch, senders = (1, shape.publishers) if alone else (shape.batch, shape.senders)
        version, located = shape.version, Properties(user_properties=(("geo-location", place),) if place else ())
        subscribers = swarm.join(
            [connect(f"{name}-s{i}", version=version, properties=located) for i in range(shape.subscribers)]
        )
        filters = [subscribe(shape.topic_filter(i), version=version) for i in range(shape.subscribers)]
        swarm.ask(subscribers, filters, 0x90)
        publishers = others.join([connect(f"{name}-p{i}", version=version) for i in range(shape.publishers)])
        swarm.watch(subscribers)
        batches = [shape.batch_of(i, payload, batch, place) for i in range(shape.publishers)]
        pieces = [[b"".join(mine)] for mine in batches] if way is Way.BATCHED else batches
        writes = [[(each.sendall, piece) for piece in mine] for each, mine in zip(publishers, pieces, strict=True)]
        groups = [writes[start : start + senders] for start in range(0, len(writes), senders)]
        self._rounds = [[write for turn in zip(*group, strict=True) for write in turn] for group in groups]
        self._bytes = sum(len(data) for _, data in self._rounds[0]) * shape.fan_out
        self.deliveries = senders * batch * shape.fan_out
        self._check(Counter([packet for mine in batches[:senders] for packet in mine] * shape.fan_out))

    def _check(self, expected: Counter[bytes]) -> None:
        """The first round: are these the right packets, whole and unchanged?"""
        for send, data in self._rounds[0]:
            send(data)
        got: Counter[bytes] = Counter()
        for data in self._swarm.collect(self._bytes).values():
            got.update(packets_in(data))
        if got != expected:
            raise BenchError("the broker delivered something else than was published")

    def run(self, seconds: float) -> int:
        """Rounds for this long; the number of deliveries."""
        take, expected = self._swarm.take, self._bytes
        until = clock() + seconds
        for count, writes in enumerate(cycle(self._rounds), 1):
            for send, data in writes:
                send(data)
            take(expected)
            if clock() > until:
                return count * self.deliveries
        raise AssertionError

    def close(self) -> None:
        self._swarm.close()
        if self._others is not self._swarm:
            self._others.close()


def packets_in(data: bytes) -> Iterator[bytes]:
    """The packets of a stream, as they are."""
    pos, end = 0, len(data)
    while pos < end:
        found = body_bounds(data, pos, end, strict=False)
        if found is None:
            raise BenchError("a packet is cut off")
        yield data[pos : found[1]]
        pos = found[1]


def _padded(shape: Shape, publisher: int, payload: int) -> bytes:
    """Packets of one load are of one length, whatever the number in the topic."""
    topic = shape.topic(publisher)
    width = len(shape.topic(shape.publishers - 1))
    return publish(topic, b"x" * (payload + width - len(topic)))


def qos0(stage: Stage, only: str | None = None) -> Iterator[Row]:
    """CPU per delivered message, for every shape, payload and way of writing."""
    loads = [(shape, payload, way) for shape in SHAPES for payload in PAYLOADS for way in Way]
    for shape, payload, way in (*loads, (MIXED, PAYLOADS[0], Way.BATCHED)):
        load = f"{shape.name} {way.value} {payload} B"
        if only is None or only in load:
            stage.say(f"qos0 {load}")
            yield _qos0(stage, shape, payload, load, way)


def _qos0(stage: Stage, shape: Shape, payload: int, load: str, way: Way) -> Row:
    with ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {}
        names = (*stage.brokers, *(stage.among("relay") if way is Way.ONE_AT_A_TIME else ()))
        for name in names:
            broker = stack.enter_context(stage.fresh(name)) if name == "relay" else stage.broker(name)
            flow = Flow(broker.port, shape, payload, way=way)
            stack.callback(flow.close)
            runs[name] = partial(cpu_us_each, broker.pid, partial(flow.run, stage.seconds))
        figures = interleaved(runs, stage.repeats)
    if way is Way.ONE_AT_A_TIME:
        others = [name for name in figures if name != "geomq"]
        notes = {f"x cheaper than {name}": figures[name].median / figures["geomq"].median for name in others}
        return Row("qos0", load, "us CPU per delivery", figures, notes=notes)
    verdicts = cheaper(figures, "mosquitto", AT_LEAST_MOSQUITTO[way]) + cheaper(figures, "amqtt", AT_LEAST_AMQTT)
    return Row("qos0", load, "us CPU per delivery", figures, verdicts)


def ping_pong(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Round trips per second of one client that publishes to itself, the next after receiving the last."""
    for payload in PAYLOADS:
        stage.say(f"pingpong {payload} B")
        with ExitStack() as stack:
            runs: dict[str, Callable[[], float]] = {}
            for name in stage.brokers:
                swarm = stack.enter_context(Swarm(stage.broker(name).port))
                runs[name] = partial(_round_trips, swarm, payload, stage.seconds)
            figures = interleaved(runs, stage.repeats)
        verdicts: tuple[Verdict, ...] = ()
        if "mosquitto" in figures:
            share = figures["geomq"].median / figures["mosquitto"].median
            verdicts = (Target("of mosquitto's rate", PING_PONG_SHARE).judge(share),)
        yield Row("pingpong", f"{payload} B", "round trips/s", figures, verdicts)


def _round_trips(swarm: Swarm, payload: int, seconds: float) -> float:
    if not swarm.sockets:
        (made,) = swarm.join([connect(f"pingpong-{payload}")])
        swarm.ask([made], [subscribe(f"bench/self/{payload}")], 0x90)
    (client,) = swarm.sockets
    packet = publish(f"bench/self/{payload}", b"x" * payload)
    size, send, receive = len(packet), client.sendall, client.recv
    begin = clock()
    until, now, count = begin + seconds, begin, 0
    while now < until:
        send(packet)
        left = size
        while left:
            left -= len(receive(left))
        count += 1
        now = clock()
    return count / (now - begin)
