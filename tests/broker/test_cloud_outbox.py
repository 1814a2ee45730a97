"""The bounded queue towards the cloud."""

from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.cloud_kept import NothingKept
from geomq.broker.cloud_outbox import OVERHEAD_BYTES, CloudOutbox, Op
from geomq.mqtt.packets import Pingreq, Publish
from geomq.routing.model import BrokerId, ClientId, Event, EventId


def event(number: int, qos: int = 1) -> Event:
    return Event(EventId(BrokerId("me"), 1, number), str(number), ClientId("c"), None, None, b"", qos)


def outbox(*, events_max: int = 10, bytes_max: int = 1 << 20) -> CloudOutbox:
    return CloudOutbox(NothingKept(), events_max=events_max, bytes_max=bytes_max, complain=lambda _: None)


def add(queue: CloudOutbox, number: int) -> None:
    queue.add_event(Publish(str(number)), event(number))


@given(st.lists(st.sampled_from(["event", "ping", "take", "withhold", "let go"]), max_size=60), st.integers(1, 5))
def test_whatever_happens_the_newest_events_stay_in_order(steps: list[str], events_max: int) -> None:
    queue, said, number = outbox(events_max=events_max), [], 0
    for step in steps:
        match step:
            case "event":
                add(queue, number)
                number += 1
            case "ping":
                queue.add(Op(Pingreq()))
            case "take" if queue:
                said.append(queue.take())
            case "withhold":
                queue.withhold()
            case "let go":
                queue.let_go()
        assert queue.events <= events_max
        assert queue.events == sum(op.is_event for op in queue.ops())
    queue.let_go()
    topics = [int(op.subject) for op in (*said, *queue.ops()) if op.is_event]
    assert topics == sorted(topics)
    assert len(topics) + queue.dropped == number


def test_bytes_are_bounded_too() -> None:
    queue = outbox(bytes_max=3 * (OVERHEAD_BYTES + 1))
    for number in range(5):
        add(queue, number)
    assert [op.subject for op in queue.ops()] == ["2", "3", "4"]


def test_an_event_put_back_is_the_first_again() -> None:
    queue = outbox()
    for number in range(3):
        add(queue, number)
    queue.put_back(queue.take())
    assert [op.subject for op in queue.ops()] == ["0", "1", "2"]
