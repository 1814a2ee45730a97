"""Which packets a client may send when: CONNECT first and once, then whatever is a client's to send."""

from enum import Enum

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.types import PacketType

_P = PacketType
_FROM_CLIENTS = frozenset(
    {_P.CONNECT, _P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP, _P.SUBSCRIBE, _P.UNSUBSCRIBE}
    | {_P.PINGREQ, _P.DISCONNECT, _P.AUTH}
)


class State(Enum):
    """Where a connection is between its beginning and its end."""

    OPENING = 1
    CHECKING = 2
    OPEN = 3
    CLOSED = 4


def check_order(packet_type: int, state: State, *, connecting: bool, authenticating: bool) -> None:
    """Raise ProtocolViolation for a packet, not PUBLISH, that must not come now. With `connecting` there was a CONNECT
    that is not decided yet, with `authenticating` an exchange of AUTH packets is under way."""
    if packet_type not in _FROM_CLIENTS:
        raise ProtocolViolation(f"{PacketType(packet_type).name} is not allowed from a client")
    if packet_type == _P.CONNECT:
        if state is not State.OPENING or connecting:
            raise ProtocolViolation("a second CONNECT on one connection")
    elif state is not State.OPEN and not (packet_type == _P.AUTH and authenticating):
        raise ProtocolViolation("the first packet is not CONNECT")
