"""What a durable session must remember, as values: sessions journal them, a store writes them down.

Every change names the session's client. Replaying the changes in order rebuilds the outbound and inbound
state.
"""

import msgspec

from geomq.mqtt.session.message import ApplicationMessage


class DeliveryAdded(msgspec.Struct, frozen=True, gc=False):
    """A message joined the session; `packet_id` is 0 while it waits in the queue."""

    client_id: str
    number: int
    message: ApplicationMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    packet_id: int


class DeliverySent(msgspec.Struct, frozen=True, gc=False):
    """A queued message left the queue under this packet identifier."""

    client_id: str
    number: int
    packet_id: int


class DeliveryReleased(msgspec.Struct, frozen=True, gc=False):
    """The receiver has the QoS 2 message; only PUBREL and PUBCOMP are left to do."""

    client_id: str
    number: int
    packet_id: int


class DeliveryRemoved(msgspec.Struct, frozen=True, gc=False):
    """The message is finished: acknowledged, expired, dropped or refused."""

    client_id: str
    number: int


class ReceiptAdded(msgspec.Struct, frozen=True, gc=False):
    """A QoS 2 packet identifier was accepted from the client."""

    client_id: str
    packet_id: int


class ReceiptRemoved(msgspec.Struct, frozen=True, gc=False):
    """The client released that packet identifier."""

    client_id: str
    packet_id: int


class EventsMissed(msgspec.Struct, frozen=True, gc=False):
    """So many events were dropped since the client was last told; 0 once it was."""

    client_id: str
    total: int


Change = (
    DeliveryAdded | DeliverySent | DeliveryReleased | DeliveryRemoved | ReceiptAdded | ReceiptRemoved | EventsMissed
)
Journal = list[Change]
