"""Strategies whose messages are counted one by one, because their routes change with what they see.

Owns their numbers, the kinds of messages in a tally, and which workloads they can be evaluated on.
"""

from collections.abc import Sequence

from geomq.mqtt.codec.topics import first_level
from geomq.routing.strategies.adaptive import PAIRS_MAX
from geomq.routing.strategies.georendezvous import KEYS_MAX

GEORENDEZVOUS = 0
ADAPTIVE = 1
MESH = 2
# No strategy but what one could do who knows the future: what it sends beyond the events that serve somebody.
CLAIRVOYANT = 3
STRATEGIES = 4

EVENT = 0
SUBSCRIPTION = 1
DELIVERY = 2
LOCATION = 3
CONTROL = 4
KINDS = 5

NAMES = {"adaptive": ADAPTIVE, "georendezvous": GEORENDEZVOUS, "mesh": MESH}
TABLES_MAX = {"adaptive": PAIRS_MAX, "georendezvous": KEYS_MAX}


def evaluated(topics: Sequence[str], brokers: int) -> tuple[str, ...]:
    """The strategies among these that can be evaluated topic by topic: if each topic is a topic group of its own,
    those of which no broker's table can become full."""
    groups = {first_level(topic) or "" for topic in topics}
    if len(groups) != len(topics):
        return ()
    return tuple(name for name, most in TABLES_MAX.items() if len(topics) * brokers < most)
