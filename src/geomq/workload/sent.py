"""Strategies whose messages are counted one by one, because their routes change with what they see.

Owns their numbers, the kinds of messages in a tally, and which workloads they can be evaluated on.
"""

from collections.abc import Sequence

from geomq.mqtt.topics import first_level
from geomq.routing.georendezvous import KEYS_MAX

GEORENDEZVOUS = 0
ADAPTIVE = 1
STRATEGIES = 2

EVENT = 0
SUBSCRIPTION = 1
DELIVERY = 2
LOCATION = 3
CONTROL = 4
KINDS = 5

NAMES = {"adaptive": ADAPTIVE, "georendezvous": GEORENDEZVOUS}


def evaluated_apart(topics: Sequence[str], brokers: int) -> bool:
    """Whether each topic is a topic group of its own, and no table of a broker can become full."""
    groups = {first_level(topic) or "" for topic in topics}
    return len(groups) == len(topics) and len(topics) * brokers < KEYS_MAX
