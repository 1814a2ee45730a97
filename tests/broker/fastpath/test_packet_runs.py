"""Packets of one length and topic that follow each other are found, whatever comes after them."""

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.fastpath.packet_runs import AT_ONCE, end_of_run
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V311

TOPIC = "t/a"
HEAD_BYTES = 4 + len(TOPIC)
lengths = st.one_of(st.integers(1, 20), st.sampled_from([AT_ONCE, AT_ONCE + 1, 9 * AT_ONCE + 1, 2_000]))
runs = st.lists(st.tuples(st.sampled_from([TOPIC, "t/b"]), lengths), max_size=4)


@given(lengths, runs, st.booleans(), st.integers(0, 10))
def test_a_run_ends_where_another_topic_or_half_a_packet_begins(
    first: int, others: list[tuple[str, int]], viewed: bool, cut: int
) -> None:
    topics = [topic for topic, count in ((TOPIC, first), *others) for _ in range(count)]
    packets = {topic: encode(Publish(topic, b"xyz"), V311) for topic in topics}
    size = len(packets[TOPIC])
    data = b"".join([packets[topic] for topic in topics])
    end = max(size, len(data) - cut)
    whole = topics[: end // size]
    expected = size * sum(1 for _ in takewhile(TOPIC.__eq__, whole))
    assert end_of_run(memoryview(data) if viewed else data, 0, HEAD_BYTES, size, end) == expected
