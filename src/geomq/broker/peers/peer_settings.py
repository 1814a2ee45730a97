"""Where a broker finds its peers, and how much may wait for one."""

import ssl
from collections.abc import Callable
from typing import NamedTuple

from geomq.routing.wire.link import OUTBOX_BYTES_MAX

TlsNow = Callable[[], ssl.SSLContext | None]
"""The TLS settings for links as they are now, None for none."""


class PeerAddress(NamedTuple):
    host: str
    port: int


class PeerLimits(NamedTuple):
    frame_bytes_max: int = 1 << 24
    outbox_max: int = 100_000
    outbox_bytes_max: int = OUTBOX_BYTES_MAX


DEFAULT_LIMITS = PeerLimits()
