"""What a program gives the client, checked and put into MQTT packets; what cannot be is one clear line."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from geomq.client.errors import ClientError, NotLetInError, RefusedError
from geomq.client.places import FenceLike, LocationLike, fence_text_of, location_text_of
from geomq.errors import ProtocolError, TopicError, UsageError
from geomq.mqtt.client.events import words
from geomq.mqtt.codec import packets
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.topics import check_filter, check_topic, split_shared
from geomq.transport.address import PORTS, Address
from geomq.vocabulary import FENCE_PROPERTY, LOCATION_PROPERTY

UserProperties = tuple[tuple[str, str], ...]

PASSING: Final = frozenset(
    {
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
    }
)
"""Reasons to refuse a client that may be gone when it tries again."""
FINAL: Final = frozenset({ReasonCode.SESSION_TAKEN_OVER, ReasonCode.NOT_AUTHORIZED, ReasonCode.ADMINISTRATIVE_ACTION})
"""Reasons to end a connection after which a client does not come back: another one has its id, for one."""


@dataclass(frozen=True, kw_only=True)
class Will:
    """What the broker publishes if the connection breaks; `to` is the fence where it matters."""

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    to: FenceLike | None = None

    def packet(self) -> packets.Will:
        """As it stands in CONNECT."""
        properties = Properties(will_delay_interval=self.delay_s or None, user_properties=places(fence=self.to))
        return packets.Will(
            check_topic(self.topic), bytes_of(self.payload), checked_qos(self.qos), self.retain, properties
        )


def bytes_of(payload: bytes | str) -> bytes:
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def checked_qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise ValueError(f"QoS must be 0, 1 or 2, not {qos}")
    return qos


def checked_filter(topic_filter: str) -> str:
    check_filter(split_shared(topic_filter).topic_filter)
    return topic_filter


def checked_handling(retain_handling: int) -> int:
    if retain_handling not in (0, 1, 2):
        raise ValueError(f"retain handling must be 0, 1 or 2, not {retain_handling}")
    return retain_handling


def places(*, at: LocationLike | None = None, fence: FenceLike | None = None) -> UserProperties:
    """Places as user properties."""
    found = []
    if at is not None:
        found.append((LOCATION_PROPERTY, location_text_of(at)))
    if fence is not None:
        found.append((FENCE_PROPERTY, fence_text_of(fence)))
    return tuple(found)


def refusal(action: str, reason: ReasonCode, properties: Properties) -> RefusedError:
    """The broker refused."""
    kind = NotLetInError if action == "connect" else RefusedError
    return kind(action, int(reason), words(reason, properties))


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Say in one line what could not be done and why."""
    try:
        yield
    except RefusedError:
        raise
    except ClientError as error:
        raise type(error)(f"{what}: {error}") from None
    except (UsageError, TopicError, ProtocolError, ValueError, OverflowError) as error:
        raise UsageError(f"{what}: {error}") from None


def address_of(host: str, port: int | None, tls: ssl.SSLContext | bool, path: str | None) -> Address:
    """Where a broker is; the usual port where none is given."""
    context = ssl.create_default_context() if tls is True else (tls or None)
    usual = PORTS[(context is not None, path is not None)]
    return Address(host, usual if port is None else port, context, path)
