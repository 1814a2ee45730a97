"""Who dials, and when: of two brokers the one whose name sorts first, again and again, after pauses that grow.

The other one dials, too, as long as the two have never been linked: the first may no longer know of it.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

from geomq.broker.peers.channel import PeerChannel
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.platform import Platform

log = logging.getLogger("geomq.peers")

RETRY_S = (0.1, 10.0)
PATIENCE_S = 5.0
"""How long a peer that is to dial us has time for it."""


class Dialler:
    """Dials one peer as long as it `is_missing`."""

    def __init__(
        self,
        peer: str,
        address: PeerAddress | None,
        *,
        ours: bool,
        tls: Callable[[], ssl.SSLContext | None],
        make_channel: Callable[[], PeerChannel],
        is_missing: Callable[[], bool],
        platform: Platform,
    ) -> None:
        self._peer = peer
        self._address = address
        self._ours = ours
        self._tls = tls
        self._make_channel = make_channel
        self._is_missing = is_missing
        self._uniform = platform.uniform
        self._pause_s, self._patience_s = RETRY_S[0], 0.0 if ours else PATIENCE_S
        self._met = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to dial, if that is ours to do and was not begun."""
        if self._address is not None and (self._ours or not self._met) and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._dial(self._address))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def move(self, address: PeerAddress | None) -> None:
        """From now on the peer is elsewhere, if that is known."""
        if address not in (None, self._address):
            self._address = address
            self.stop()

    def linked(self) -> None:
        """The link is up: the next time begins without a pause."""
        self._met = True
        self._pause_s, self._patience_s = RETRY_S[0], 0.0

    def refused(self, *, for_s: float) -> None:
        """The peer does not want to be dialled again for so long."""
        self._patience_s = for_s

    async def _dial(self, address: PeerAddress) -> None:
        await asyncio.sleep(self._patience_s)
        loop = asyncio.get_running_loop()
        while self._is_missing():
            tls = self._tls()
            name = None if tls is None else self._peer
            try:
                await loop.create_connection(
                    self._make_channel, address.host, address.port, ssl=tls, server_hostname=name
                )
            except (OSError, ssl.SSLError) as error:
                log.debug("peer connection failed", extra={"peer": self._peer, "reason": str(error)})
            await asyncio.sleep(self._pause_s * self._uniform(0.5, 1.0))
            self._pause_s = min(2 * self._pause_s, RETRY_S[1])
        self._task = None
