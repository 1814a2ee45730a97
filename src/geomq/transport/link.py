"""Keeps a client session connected on an asyncio loop: connects, goes where brokers send it, and connects again.

A broker may send a client to another one ("use another server"); a link that follows goes there with its session, so
that nobody above needs to notice. Who owns the link decides whether it connects again after anything else.
"""

import asyncio
import os
import random
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from geomq.mqtt.client.backoff import Backoff
from geomq.mqtt.client.events import Connected, ConnectRefused, Ended, Event, server_references
from geomq.mqtt.client.session import ClientSession
from geomq.transport.address import Address
from geomq.transport.channel import Channel, Trouble

REDIRECTS_MAX: Final = 8
"""How often in a row a link is sent on before it gives up."""
ATTEMPTS_MAX: Final = 5
"""How often a link tries to connect where it was sent."""
STABLE_S: Final = 10.0
"""A connection that lasted this long was good: the next pause is short again."""


class End(NamedTuple):
    """How an attempt to be connected ended: whether a broker was contacted, and whether it accepted the client."""

    reason: str
    contacted: bool = False
    up: bool = False
    said: ConnectRefused | Ended | None = None
    """The broker's own word, if it gave one."""
    sent_to: str | None = None
    trouble: Trouble | None = None
    """What was wrong with the broker, if it ended for that."""


class ClientLink:
    """`again` is asked after each end, redirects excepted, whether to connect once more.

    `leave_s` is how long what was written may take to leave when the link is cancelled; `dice` gives numbers in 0..1.
    """

    def __init__(
        self,
        session: ClientSession,
        address: Address,
        *,
        handle: Callable[[Event], None],
        again: Callable[[End], bool],
        backoff: Backoff | None = None,
        follows: bool = False,
        connect_s: float = 10.0,
        leave_s: float = 10.0,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.session = session
        self.address = address
        self.channel: Channel | None = None
        self.moves = 0
        """How often the link went to another broker."""
        self._home = address
        self._handle = handle
        self._again = again
        self._backoff = backoff or Backoff()
        self._follows = follows
        self._connect_s = connect_s
        self._leave_s = leave_s
        self._dice = dice
        self._redirects = 0
        self._attempts = 0

    def flush(self) -> None:
        """Something was asked of the session: send it soon."""
        if self.channel is not None:
            self.channel.flush_soon()

    async def run(self) -> End:
        """Stay connected until there is a reason not to; cancel it to disconnect."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            end = await self._connection()
            if end.up and loop.time() - began > STABLE_S:
                self._backoff.reset()
            if self._follow(end):
                continue
            if self._attempts:
                self._attempts -= 1
                if not self._attempts:
                    end = end._replace(reason=f"redirected to {self.address}: {end.reason}")
                    self.address = self._home
            if not self._attempts and not self._again(end):
                return end
            await asyncio.sleep(self._backoff.pause_s(self._dice()))

    def _follow(self, end: End) -> bool:
        if end.sent_to is None or self._redirects >= REDIRECTS_MAX:
            return False
        self._redirects += 1
        self._attempts = ATTEMPTS_MAX
        self.address = self.address.sent_to(end.sent_to)
        self._backoff.reset()
        return True

    async def _connection(self) -> End:
        """One connection, from the attempt to its end."""
        loop, address = asyncio.get_running_loop(), self.address
        channel = Channel(self.session, address, self._on_event)
        self.channel = channel
        try:
            async with asyncio.timeout(self._connect_s):
                await loop.create_connection(lambda: channel, address.host, address.port, ssl=address.tls)
        except TimeoutError:
            return End(f"no connection within {self._connect_s:g} s", trouble="late")
        except (OSError, UnicodeError, OverflowError) as error:
            return End(_line(error))
        try:
            reason = await asyncio.shield(channel.ended)
        except asyncio.CancelledError:
            self.session.disconnect()
            channel.close("closed here", politely=True)
            await asyncio.wait((channel.ended,), timeout=self._leave_s)
            channel.close("closed here")
            raise
        return self._end_of(channel, reason)

    def _end_of(self, channel: Channel, reason: str) -> End:
        said = channel.said
        references = server_references(said.reason, said.properties) if said is not None else ()
        sent_to = references[0] if references and self._follows else None
        return End(reason, True, channel.welcomed, said, sent_to, channel.trouble)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Connected):
            if self._attempts:
                self.moves += 1
            self._redirects = self._attempts = 0
        self._handle(event)


def _line(error: Exception) -> str:
    """What the system says, without the numbers; asyncio puts several attempts into one error."""
    text = " ".join(str(error).split())
    number = re.search(r"\[Errno (\d+)\] Connect call failed", text)
    return os.strerror(int(number[1])) if number else text or type(error).__name__
