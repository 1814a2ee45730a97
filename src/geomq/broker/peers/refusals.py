"""What is refused between brokers: those who do not prove who they are, messages of peers that cannot be taken in, own
ones that cannot be sent.

Each is counted. The log names peer, message and reason, but of what is alike only one line in ten seconds: a peer that
sends nothing else fills no disk. Refusing ends no link.
"""

import logging
from collections.abc import Callable

from geomq.broker.state.counts import Counts
from geomq.routing.core.model import BrokerId
from geomq.routing.node import Node
from geomq.routing.wire.frames import Refused

log = logging.getLogger("geomq.peers")

PAUSE_S = 10.0
KINDS_MAX = 1_000
"""Lines that are told apart; beyond that the pause counts for all of them together."""


class PeerRefusals:
    """Counts what is refused at the links of one broker and logs it at a bounded rate."""

    def __init__(self, counts: Counts, node: Node, *, now_s: Callable[[], float]) -> None:
        self._counts = counts
        self._node = node
        self._now_s = now_s
        self._logged_s: dict[tuple[str, ...], float] = {}

    def broker(self, address: str, reason: str) -> None:
        """Somebody did not prove to be a broker that may be linked."""
        self._counts.brokers_refused += 1
        self._log(logging.WARNING, "broker refused", (address.rpartition(":")[0],), address=address, reason=reason)

    def namesake(self, name: str, *, refused: str, linked: str) -> None:
        """Two brokers have one name; the one that came later is refused."""
        self._counts.name_conflicts += 1
        self._log(
            logging.ERROR,
            "refused a second broker of the same name",
            (name,),
            peer=name,
            refused=refused,
            linked=linked,
        )

    def name_taken(self, name: str, *, by: str, mine: str, linked: str) -> None:
        """A broker refused this one, because another broker of its name is linked there."""
        self._counts.name_conflicts += 1
        reason = f"another broker named {name} is linked there; give this one another name, or stop the other"
        self._log(logging.ERROR, "this broker was refused", (by,), peer=by, reason=reason, refused=mine, linked=linked)

    def received(self, peer: BrokerId, message: Refused) -> None:
        """A message of a peer is unknown here or makes no sense. It was acknowledged all the same, or it would be
        sent again forever."""
        self._counts.peer_messages_refused += 1
        level = logging.WARNING if message.promised else logging.INFO
        self._log_message(level, "refused a message from a peer", peer, message.name, message.reason)

    def failed(self, peer: BrokerId, name: str, error: Exception) -> None:
        """A message of a peer could not be dealt with."""
        self._counts.peer_messages_refused += 1
        self._log_message(logging.ERROR, "failed to handle a message from a peer", peer, name, str(error), error)

    def unsent(self, peer: BrokerId, name: str, reason: str) -> None:
        """An own message cannot travel."""
        self._counts.peer_messages_unsent += 1
        strategy = type(self._node.strategy)
        text = f"a message of strategy {strategy.__module__}:{strategy.__qualname__} cannot be sent"
        self._log_message(logging.ERROR, text, peer, name, reason)

    def _log_message(
        self, level: int, text: str, peer: BrokerId, name: str, reason: str, error: Exception | None = None
    ) -> None:
        self._log(level, text, (peer, name), error, peer=peer, message_type=name, reason=reason)

    def _log(self, level: int, text: str, about: tuple[str, ...], error: Exception | None = None, **extra: str) -> None:
        """Log it, unless the same was logged a moment ago `about` the same."""
        kind = (text, *about)
        now_s = self._now_s()
        if len(self._logged_s) >= KINDS_MAX and kind not in self._logged_s:
            kind = (text,)
        if now_s - self._logged_s.get(kind, -PAUSE_S) < PAUSE_S:
            return
        self._logged_s[kind] = now_s
        log.log(level, text, extra=extra, exc_info=error)
