"""What the store keeps, as records and keys. All times are Unix seconds.

A key is one letter for its kind, then what names it; numbers are big-endian so that keys sort by them. A
client id is preceded by its length, so no id's keys can fall among another's.
"""

import struct
from dataclasses import dataclass, field

import msgspec

from geomq.broker.config.queues import QueueFull
from geomq.mqtt.codec.packets import Will
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.outbound import InFlight
from geomq.mqtt.session.subscriptions import Subscription

FORMAT = 1
FORMAT_KEY = b"\x00format"
EPOCH_KEY = b"\x00epoch"

SESSION, SUBSCRIPTION, FENCE, DELIVERY, RECEIPT, MISSED = b"S", b"s", b"f", b"d", b"i", b"x"
MESSAGE, RETAINED, NOTE = b"m", b"r", b"n"
PER_CLIENT = (SESSION, SUBSCRIPTION, FENCE, DELIVERY, RECEIPT, MISSED)


class SessionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session apart from its subscriptions, fences and messages."""

    user: str | None = None
    version: int = 5
    expiry_s: int = 0
    expires_at: float | None = None
    location: tuple[float, float] | None = None
    will: Will | None = None
    will_due_at: float | None = None
    extra: bytes = b""
    asks: bool = False
    queue_full: QueueFull | None = None
    place: str | None = None
    """The listener that the client came in by last."""
    mount: str = ""
    proved: bool = False
    """Whether the user was more than a name."""


class SubscriptionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription and its fence as text."""

    subscription: Subscription
    fence: str | None = None


class RetainedRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What goes with a retained message: where it matters, and where, by whom and how it was published."""

    fence: str | None = None
    location: tuple[float, float] | None = None
    client_id: str | None = None
    user: str | None = None
    extra: bytes = b""
    place: str | None = None


class DeliveryRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message on its way to one client; the message itself is kept once, under its number."""

    message: int
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    packet_id: int
    released: bool


class RetainedEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a retained message is written down."""

    message: int
    about: RetainedRecord


@dataclass(slots=True)
class StoredSession:
    """Everything the store knows of one session; deliveries are in the order of their numbers."""

    record: SessionRecord
    subscriptions: dict[str, SubscriptionRecord] = field(default_factory=dict)
    fences: dict[str, str] = field(default_factory=dict)
    deliveries: list[InFlight] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    missed: int = 0
    """Events dropped that the client has not been told of."""


@dataclass(slots=True)
class StoredState:
    """What a broker finds at start. `epoch` is higher than at any earlier start."""

    epoch: int
    sessions: dict[str, StoredSession] = field(default_factory=dict)
    retained: dict[str, tuple[ApplicationMessage, RetainedRecord]] = field(default_factory=dict)
    notes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)


number_bytes = struct.Struct(">Q").pack
packet_id_bytes = struct.Struct(">H").pack


def named(kind: bytes, name: str) -> bytes:
    """The key, or the start of the keys, of what belongs to a client, link or kind of note."""
    text = name.encode("utf-8", "surrogatepass")
    return kind + packet_id_bytes(len(text)) + text


def split_named(key: bytes) -> tuple[str, bytes]:
    """The name in such a key and what follows it."""
    end = 3 + int.from_bytes(key[1:3])
    if len(key) < end:
        raise ValueError("key is cut short")
    return key[3:end].decode("utf-8", "surrogatepass"), key[end:]
