"""Strategies whose messages are counted one by one, because their routes change with what they see.

Owns their numbers, the kinds of messages in a tally, and which workloads they can be evaluated on.
"""

from collections.abc import Sequence

from geomq.mqtt.codec.topics import first_level
from geomq.routing.strategies.adaptive import PAIRS_MAX
from geomq.routing.strategies.digests.outlook import KEYS_MAX as ENTRIES_MAX
from geomq.routing.strategies.georendezvous import KEYS_MAX

GEORENDEZVOUS = 0
ADAPTIVE = 1
MESH = 2
# No strategy but what one could do who knows the future: what it sends beyond the events that serve somebody.
CLAIRVOYANT = 3
DIGESTS = 4
STRATEGIES = 5

EVENT = 0
SUBSCRIPTION = 1
DELIVERY = 2
LOCATION = 3
CONTROL = 4
KINDS = 5

NAMES = {"adaptive": ADAPTIVE, "digests": DIGESTS, "georendezvous": GEORENDEZVOUS, "mesh": MESH}
TABLES_MAX = {"adaptive": PAIRS_MAX, "georendezvous": KEYS_MAX}


def evaluated(topics: Sequence[str], brokers: int) -> tuple[str, ...]:
    """The strategies among these that can be evaluated: if each topic is a topic group of its own, those of which no
    broker's table can become full. An empty first level concerns every topic in a digest."""
    groups = {first_level(topic) or "" for topic in topics}
    if len(groups) != len(topics):
        return ()
    found = [name for name, most in TABLES_MAX.items() if len(topics) * brokers < most]
    return (*found, *(["digests"] if "" not in groups and len(topics) <= ENTRIES_MAX else []))
