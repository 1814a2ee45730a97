"""What the acknowledgements of a client make its session send next."""

from collections.abc import Iterable

from geomq.mqtt.codec.packets import Packet, Puback, Pubcomp, Pubrec, Pubrel
from geomq.mqtt.session.session import Session


def acknowledge(session: Session, packet: Packet, now: float) -> Iterable[bytes] | None:
    """The packets to send, or None if this one acknowledges nothing."""
    match packet:
        case Puback():
            return session.on_puback(packet, now)
        case Pubrec():
            return session.on_pubrec(packet, now)
        case Pubcomp():
            return session.on_pubcomp(packet, now)
        case Pubrel():
            return (session.on_pubrel(packet),)
        case _:
            return None
