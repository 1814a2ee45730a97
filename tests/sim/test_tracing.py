"""What observers write down."""

from tests.routing.stage import moved, published, row_of_squares, subscribed

from geomq.routing.core.events import ClientUnsubscribed
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.trace.records import TraceRecord
from geomq.sim.engine import Observer, Simulation
from geomq.sim.network import Latencies
from geomq.sim.script import Step
from geomq.sim.tracing import Trace, TraceHash, Transcript

B1, B2 = BrokerId("b1"), BrokerId("b2")
STEPS = [Step(0, B1, moved("s", 5, 5)), Step(1, B1, subscribed("s", "t")), Step(100, B2, published("p", "t"))]


def play(*observers: Observer, strategy: str = "flood_subscriptions", steps: list[Step] = STEPS) -> None:
    federation = row_of_squares(2)
    ways = {(B1, B2): 10, (B2, B1): 10}
    latencies = Latencies(federation, given_ms=ways)
    Simulation(federation, strategy, latencies=latencies, observers=observers).run(steps)


def test_a_transcript_tells_the_story() -> None:
    lines: list[str] = []
    play(Transcript(lines.append))
    assert lines == [
        "       6 b1: ClientSubscribed client=s topic_filter=t",
        "           -> to b2: PutSubscription client=s topic_filter=t location=5,5",
        "      16 b2: from b1: PutSubscription client=s topic_filter=t location=5,5",
        "     105 b2: ClientPublished client=p topic=t",
        "           -> to b1: DeliverEvent event=b2:0:1(p t) matches=[s:t]",
        "     115 b1: from b2: DeliverEvent event=b2:0:1(p t) matches=[s:t]",
        "           -> deliver b2:0:1 to s",
        "     120 s: received b2:0:1 on t after 20 ms",
    ]


def test_a_transcript_stops_after_its_steps() -> None:
    lines: list[str] = []
    play(Transcript(lines.append, steps_max=2))
    assert [line.split()[0] for line in lines] == ["6", "->", "16"]


def test_a_trace_has_a_record_for_each_step_of_each_message() -> None:
    records: list[TraceRecord] = []
    play(Trace(records.append))
    event = EventId(B2, 0, 1)
    assert [(r.t_ms, r.broker, r.step, r.kind, r.event_id, r.peer, r.client, r.reason) for r in records] == [
        (0, B1, "moved", "location", None, None, "s", None),
        (1, B1, "subscribed", "subscription", None, None, "s", None),
        (6, B1, "sent", "subscription", None, B2, "s", "PutSubscription"),
        (16, B2, "received", "subscription", None, B1, "s", "PutSubscription"),
        (100, B2, "published", "event", event, None, "p", None),
        (105, B2, "matched", "event", event, B1, "s", None),
        (105, B2, "sent", "delivery", event, B1, None, "DeliverEvent"),
        (115, B1, "received", "delivery", event, B2, None, "DeliverEvent"),
        (120, B1, "delivered", "event", event, None, "s", None),
    ]
    assert (records[0].lat, records[0].lon, records[2].topic, records[4].topic) == (5.0, 5.0, "t", "t")


def test_a_trace_says_why_an_event_ended() -> None:
    records: list[TraceRecord] = []
    steps = [*STEPS, Step(101, B1, ClientUnsubscribed(ClientId("s"), "t"))]
    play(Trace(records.append), steps=steps)
    assert [(r.t_ms, r.reason) for r in records if r.step == "dropped"] == [(115, "no longer subscribed")]


def test_a_hash_stands_for_the_whole_run() -> None:
    def hashed(strategy: str, steps: list[Step]) -> str:
        observer = TraceHash()
        play(observer, strategy=strategy, steps=steps)
        return observer.hexdigest()

    later = [*STEPS[:-1], Step(101, B2, published("p", "t"))]
    values = [hashed("flood_subscriptions", STEPS), hashed("flood_events", STEPS), hashed("flood_subscriptions", later)]
    assert len(set(values)) == 3
    assert values[0] == hashed("flood_subscriptions", STEPS)
