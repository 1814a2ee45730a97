"""What a peer's clients may publish into and read from here, as `[federation] acl_file` says.

A message that carries an event is checked on its way in and out. What comes must be allowed for the broker that sent it
and, if a third one's client published it, for that one, too: a broker cannot do more by speaking for another, nor by
having another speak for it. What is refused is counted by reason and peer, acknowledged like any other message, and
ends no link.
"""

from geomq.broker.core import Core
from geomq.broker.state.drops import Reason
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, Event, Version
from geomq.routing.retained.versions import PutRetained


class PeerRights:
    """Checks what crosses the links of one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def may_come(self, said: PeerSaid) -> bool:
        """Whether to take in what a peer sent."""
        if self._core.security.peer_acl is None or not isinstance(event := getattr(said.message, "event", None), Event):
            return True
        for peer in dict.fromkeys((said.peer, *self._origin_of(event))):
            reason = self._problem(peer, event)
            if reason is not None:
                if not self._is_known(said.message):
                    self._core.drops.for_peer(peer, reason)
                return False
        return True

    def may_go(self, peer: BrokerId, message: Message) -> bool:
        """Whether a peer may have a message."""
        if self._core.security.peer_acl is None or not isinstance(event := getattr(message, "event", None), Event):
            return True
        if self._core.rights_of_peer(peer).may_read(event.topic):
            return True
        self._core.drops.for_peer(peer, Reason.PEER_MAY_NOT_READ)
        if self._core.tracer is not None:
            self._core.tracer.lost(peer, message, Reason.PEER_MAY_NOT_READ.value.replace("_", " "))
        return False

    def _problem(self, peer: BrokerId, event: Event) -> Reason | None:
        rights = self._core.rights_of_peer(peer)
        if not rights.may_write(event.topic):
            return Reason.PEER_MAY_NOT_WRITE
        if not rights.may_publish_from(event.topic, event.location):
            return Reason.PEER_MAY_NOT_WRITE_FROM
        if not rights.may_publish_into(event.topic, event.fence):
            return Reason.PEER_MAY_NOT_WRITE_INTO
        return None

    def _origin_of(self, event: Event) -> tuple[BrokerId, ...]:
        """The peer whose client published it; none if it is this broker's own, or nobody's of the federation."""
        node, origin = self._core.node, event.id.origin
        return (origin,) if origin != node.me and origin in node.strategy.federation.position else ()

    def _is_known(self, message: Message) -> bool:
        """Whether a retained event is no news: peers repeat all of them whenever they differ."""
        if not isinstance(message, PutRetained):
            return False
        version = self._core.node.retained.version(message.event.topic)
        return version is not None and version >= Version(message.event.id.sequence, message.event.id.origin)
