"""How a broker that knows nobody but a seed becomes part of the seed's federation.

It dials the seed, proves its name as every peer does, and asks to join. The answer is the federation's description,
with this broker in it. Until there is one it asks again, after a growing pause.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

import msgspec

from geomq.broker.peers.channel import Credentials, PeerChannel
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.platform import SYSTEM
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.description import BrokerEntry
from geomq.routing.wire.frames import Aside, AskToJoin, Described, NameTaken, NotJoined
from geomq.routing.wire.link import Frame

log = logging.getLogger("geomq.peers")

RETRY_S = (0.2, 10.0)
ANSWER_S_MAX = 10.0
FRAME_BYTES_MAX = 1 << 24


class Seeker:
    """Asks one seed until the federation takes this broker in."""

    def __init__(
        self,
        seed: PeerAddress,
        entry: BrokerEntry,
        credentials: Credentials,
        *,
        dial_tls: Callable[[], ssl.SSLContext | None],
        found: Callable[[bytes], bool],
        name_taken: Callable[[str, NameTaken], None] = lambda _, __: None,
        uniform: Callable[[float, float], float] = SYSTEM.uniform,
    ) -> None:
        self._uniform = uniform
        self._seed = seed
        self._entry = entry
        self._credentials = credentials
        self._dial_tls = dial_tls
        self._found = found
        self._name_taken = name_taken
        self._answer: asyncio.Future[bytes] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._seek(), name="geomq-seed")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _seek(self) -> None:
        pause_s = RETRY_S[0]
        while True:
            try:
                if self._found(await asyncio.wait_for(self._ask(), ANSWER_S_MAX)):
                    return
            except (OSError, ssl.SSLError, TimeoutError) as error:
                log.warning(
                    "the seed refused to admit this broker", extra={"seed": str(self._seed), "reason": str(error)}
                )
            await asyncio.sleep(pause_s * self._uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, RETRY_S[1])

    async def _ask(self) -> bytes:
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        tls = self._dial_tls()
        transport, _ = await loop.create_connection(
            lambda: PeerChannel(self._credentials, self, expected=None, frame_bytes_max=FRAME_BYTES_MAX),
            self._seed.host,
            self._seed.port,
            ssl=tls,
            server_hostname=self._seed.host if tls is not None else None,
        )
        try:
            return await self._answer
        finally:
            transport.abort()

    # What the channel reports.

    def made(self, channel: PeerChannel) -> None:
        """The seed has yet to prove its name."""

    def opened(self, channel: PeerChannel) -> bool:
        if channel.peer != self._credentials.me:
            channel.send(AskToJoin(msgspec.msgpack.encode(self._entry)))
        return True

    def heard(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        if self._answer is None or self._answer.done():
            return
        if isinstance(frame, Described):
            self._answer.set_result(frame.description)
        elif isinstance(frame, NotJoined):
            self._answer.set_exception(ConnectionRefusedError(frame.reason[:200]))
        elif isinstance(frame, NameTaken):
            self._name_taken(channel.peer or "", frame)
            self._answer.set_exception(ConnectionRefusedError("another broker of this name is linked there"))

    def unsent(self, peer: BrokerId, message: Message, reason: str) -> None:
        """No message is sent to a seed."""

    def closed(self, channel: PeerChannel, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(reason))
