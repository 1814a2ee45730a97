"""The published ring: ten nodes a broker, MD5's first four bytes, the next node clockwise."""

import hashlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from geomq.routing.strategies.ring import VIRTUAL_NODES, HashRing


def spot(key: str) -> int:
    return int(hashlib.md5(key.encode()).hexdigest()[:8], 16)


def by_hand(brokers: list[str], topic: str) -> int:
    """The owner of the node whose clockwise distance from the topic is smallest."""
    nodes = [(spot(f"{broker}-{i}"), position) for position, broker in enumerate(brokers) for i in range(VIRTUAL_NODES)]
    return min(nodes, key=lambda node: ((node[0] - spot(topic)) % 2**32, node[1]))[1]


names = st.lists(st.text("abcdef", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)


@given(names, st.text(max_size=20))
def test_a_topic_belongs_to_the_next_node_clockwise(brokers: list[str], topic: str) -> None:
    assert HashRing(brokers).owner(topic) == by_hand(brokers, topic)


def test_the_first_node_follows_the_last() -> None:
    ring = HashRing(["a", "b"])
    last = max(range(20_000), key=lambda i: spot(str(i)))
    assert ring.owner(str(last)) == by_hand(["a", "b"], str(last))


def test_a_broker_that_leaves_gives_away_only_its_own_topics() -> None:
    before, after = HashRing(["a", "b", "c", "d"]), HashRing(["a", "b", "c"])
    moved = Counter((before.owner(str(i)), after.owner(str(i))) for i in range(2000))
    assert all(old == new for old, new in moved if old != 3)
