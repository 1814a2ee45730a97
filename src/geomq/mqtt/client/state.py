"""A client session as bytes and back, so that a program that starts again goes on where it was.

Kept are the client id, what waits to be sent, what is on its way under which packet identifier, the QoS 2 messages the
server has not released, and the subscriptions. Requests lose their tags. The bytes hold MQTT packets in a frame of
MessagePack; bytes that were damaged are refused whole.
"""

import msgspec

from geomq.errors import ProtocolError
from geomq.mqtt.client.events import Request, State, request_of
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import PACKET_ID_MAX
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Packet, Pingreq, Publish, Subscribe, Unsubscribe
from geomq.mqtt.codec.types import NEVER_EXPIRES, V5

FORM = 1


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    packet: bytes
    packet_id: int
    qos: int
    released: bool
    left_s: float | None


class _State(msgspec.Struct, frozen=True, array_like=True):
    form: int
    client_id: str
    known: bool
    requests: list[_Saved]
    receipts: list[int]
    subscriptions: list[bytes]


_decoder = msgspec.msgpack.Decoder(_State)


def save(session: ClientSession, now: float) -> bytes:
    """The session as it is now."""
    requests = (*session.requests.under_way.values(), *session.requests.waiting())
    return msgspec.msgpack.encode(
        _State(
            FORM,
            session.client_id,
            session.known,
            [_saved(request, now) for request in requests if not isinstance(request.packet, Pingreq)],
            list(session.receipts.unreleased),
            [_bytes(packet) for packet in session.subscriptions.packets()],
        )
    )


def _saved(request: Request, now: float) -> _Saved:
    left_s = None if request.expires_at is None else request.expires_at - now
    packet_id = request.packet_id if isinstance(request.packet, Publish) else 0
    return _Saved(_bytes(request.packet), packet_id, request.qos, request.state is State.RELEASED, left_s)


def _bytes(packet: Packet) -> bytes:
    """The packet with a packet identifier that stands for none."""
    if not isinstance(packet, Publish) or packet.qos:
        packet = msgspec.structs.replace(packet, packet_id=1)
    return encode(packet, V5)


def restore(session: ClientSession, state: bytes, now: float) -> None:
    """Restore a saved state into an unused session; ProtocolError if the bytes are not such a state."""
    try:
        saved = _decoder.decode(state)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ProtocolError("not the state of a client session") from None
    if saved.form != FORM:
        raise ProtocolError(f"the state of a client session has format {saved.form}; only format {FORM} can be read")
    requests = [_request(one, now) for one in saved.requests]
    subscriptions = [_packet(packet) for packet in saved.subscriptions]
    identifiers = [one.packet_id for one in saved.requests if one.packet_id]
    if len(set(identifiers)) < len(identifiers):
        raise ProtocolError("the state of a client session uses a packet identifier twice")
    for request in requests:
        session.requests.restore(request)
    for packet_id in saved.receipts:
        session.receipts.restore(_checked(packet_id))
    for packet in subscriptions:
        if isinstance(packet, Subscribe):
            session.subscriptions.restore(packet)
    session.client_id, session.known = saved.client_id, saved.known


def _request(saved: _Saved, now: float) -> Request:
    packet = _packet(saved.packet)
    if isinstance(packet, Publish):
        packet = msgspec.structs.replace(packet, packet_id=0)
        if saved.left_s is not None and not abs(saved.left_s) <= NEVER_EXPIRES:
            raise ProtocolError("the state of a client session has a message whose expiry is not finite")
        request = request_of(packet, None if saved.left_s is None else now + saved.left_s)
        if saved.packet_id:
            if not 1 <= saved.qos <= packet.qos or (saved.released and saved.qos != 2):
                raise ProtocolError("the state of a client session has a message in flight with QoS 0")
            request.packet_id, request.qos = _checked(saved.packet_id), saved.qos
            request.state = State.RELEASED if saved.released else State.SENT
        return request
    if isinstance(packet, Subscribe | Unsubscribe):
        return Request(msgspec.structs.replace(packet, packet_id=0))
    raise ProtocolError(f"the state of a client session contains a {packet.type.name}")


def _packet(data: bytes) -> Packet:
    packets = list(Decoder(Side.SERVER, version=V5).feed(data))
    if len(packets) != 1:
        raise ProtocolError("the state of a client session is cut short")
    return packets[0]


def _checked(packet_id: int) -> int:
    if not 1 <= packet_id <= PACKET_ID_MAX:
        raise ProtocolError(f"{packet_id} is not a packet identifier")
    return packet_id
