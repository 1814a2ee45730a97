"""The messages of brokers whatever the strategy: the messages of the parts that all share.

Importing this declares all messages of GeoMQ, those of the strategies among them.
"""

from geomq.routing.core.message_registry import declare
from geomq.routing.federation import edition_messages
from geomq.routing.retained import versions
from geomq.routing.sessions import messages as sessions
from geomq.routing.sharing import groups
from geomq.routing.strategies.registry import STRATEGIES

PARTS = {
    "members": groups.MESSAGES,
    "sessions": sessions.MESSAGES,
    "retained": versions.MESSAGES,
    "editions": edition_messages.MESSAGES,
}
"""What is kept of a part's messages belongs to no edition."""

assert STRATEGIES
for _name, _messages in PARTS.items():
    declare(_messages, by=_name, part=_name, own=True)
