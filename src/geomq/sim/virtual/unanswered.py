"""What a client sent and has no answer to yet."""

from dataclasses import dataclass, field

from geomq.mqtt.codec.packets import Publish, Subscribe, Unsubscribe
from geomq.sim.virtual.records import Wish


@dataclass(slots=True)
class Outgoing:
    """A publish until it is answered."""

    event: str
    publish: Publish
    released: bool = False

    def packet(self, packet_id: int, *, dup: bool) -> Publish:
        """What goes out, for the first time or again."""
        of = self.publish
        return Publish(of.topic, of.payload, of.qos, of.retain, dup, packet_id, of.properties)


@dataclass(slots=True)
class Asked:
    """A SUBSCRIBE or UNSUBSCRIBE until it is answered."""

    wish: Wish
    packet: Subscribe | Unsubscribe = field(repr=False)
