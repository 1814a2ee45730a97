"""The page's own MQTT clients: one at each broker the page publishes or subscribes at, opened when first needed.

All pages of a dashboard share them. A lost connection is opened again with the same subscriptions.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from typing import NamedTuple

from geomq.client import Client, ClientError, Message
from geomq.dashboard.shapes import Json, fence_json
from geomq.errors import GeomqError, UsageError
from geomq.geo import Fence, Location
from geomq.vocabulary import EVENT_PROPERTY

SUBSCRIPTIONS_MAX = 50
RECEIVED_MAX = 200
PAYLOAD_SHOWN_MAX = 4_096
READY_S = 10.0
RETRY_S = 1.0


class Credentials(NamedTuple):
    """How the page's clients log in at the brokers."""

    username: str | None = None
    password: str | None = None


class _Guest:
    """A client at one broker that stays connected until closed."""

    def __init__(self, name: str, address: tuple[str, int], credentials: Credentials, received: deque[Json]) -> None:
        self.name = name
        self.at: Location | None = None
        self.subscriptions: dict[str, Fence | None] = {}
        self._address = address
        self._credentials = credentials
        self._received = received
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._trouble = "no answer"
        self._staying = asyncio.create_task(self._stay())

    async def client(self) -> Client:
        """The connection, once there is one."""
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError:
            raise UsageError(f"the page cannot reach the broker: {self._trouble}") from None
        assert self._client is not None
        return self._client

    async def close(self) -> None:
        self._staying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._staying

    async def _stay(self) -> None:
        while True:
            try:
                async with self._open() as client:
                    for topic_filter, fence in self.subscriptions.items():
                        await client.subscribe(topic_filter, within=fence)
                    self._client = client
                    self._ready.set()
                    async for message in client:
                        self._received.append(_received(message))
            except GeomqError as error:
                self._trouble = str(error)
            self._ready.clear()
            await asyncio.sleep(RETRY_S)

    def _open(self) -> Client:
        host, port = self._address
        return Client(
            host,
            port,
            client_id=self.name,
            at=self.at,
            username=self._credentials.username,
            password=self._credentials.password,
            details=True,
            queue_max=10 * RECEIVED_MAX,
        )


class PageClients:
    """All clients of the page."""

    def __init__(self, credentials: Credentials = Credentials()) -> None:  # noqa: B008
        self._credentials = credentials
        self._guests: dict[str, _Guest] = {}
        self._received: deque[Json] = deque(maxlen=RECEIVED_MAX)
        self._suffix = secrets.token_hex(3)

    def name_at(self, broker: str) -> str:
        """The client id of the page at a broker."""
        return f"page-{broker}-{self._suffix}"

    def take_received(self) -> list[Json]:
        """What arrived since the last time."""
        taken = list(self._received)
        self._received.clear()
        return taken

    def subscriptions(self) -> list[Json]:
        """What the page is subscribed to: where, from which fence, and where its client there is."""
        return [
            {
                "broker": broker,
                "filter": topic_filter,
                "fence": fence_json(fence),
                "at": None if guest.at is None else [guest.at.lat, guest.at.lon],
            }
            for broker, guest in self._guests.items()
            for topic_filter, fence in guest.subscriptions.items()
        ]

    async def subscribe(
        self, broker: str, address: tuple[str, int], topic_filter: str, fence: Fence | None, at: Location | None
    ) -> None:
        if sum(len(guest.subscriptions) for guest in self._guests.values()) >= SUBSCRIPTIONS_MAX:
            raise UsageError(f"the page has {SUBSCRIPTIONS_MAX} subscriptions already")
        guest = self._guest(broker, address)
        client = await guest.client()
        await self._stand(guest, client, at)
        await client.subscribe(topic_filter, within=fence)
        guest.subscriptions[topic_filter] = fence

    async def unsubscribe(self, topic_filter: str, broker: str | None = None) -> bool:
        """End the subscription at this broker, or wherever the page has it; whether it had it."""
        asked = self._guests.values() if broker is None else filter(None, [self._guests.get(broker)])
        holding = [guest for guest in asked if topic_filter in guest.subscriptions]
        for guest in holding:
            del guest.subscriptions[topic_filter]
            with contextlib.suppress(ClientError):
                await (await guest.client()).unsubscribe(topic_filter)
        return bool(holding)

    async def publish(
        self,
        broker: str,
        address: tuple[str, int],
        topic: str,
        payload: str,
        *,
        qos: int,
        fence: Fence | None,
        at: Location | None,
    ) -> None:
        guest = self._guest(broker, address)
        client = await guest.client()
        await self._stand(guest, client, at)
        await client.publish(topic, payload, to=fence, qos=qos)

    async def move(self, client_id: str, to: Location) -> bool:
        """Move one of the page's clients; False if it is not one."""
        for guest in self._guests.values():
            if guest.name == client_id:
                await self._stand(guest, await guest.client(), to)
                return True
        return False

    async def close(self) -> None:
        for guest in self._guests.values():
            await guest.close()

    def _guest(self, broker: str, address: tuple[str, int]) -> _Guest:
        guest = self._guests.get(broker)
        if guest is None:
            name = self.name_at(broker)
            guest = self._guests[broker] = _Guest(name, address, self._credentials, self._received)
        return guest

    async def _stand(self, guest: _Guest, client: Client, at: Location | None) -> None:
        if at is not None:
            await client.move(at.lat, at.lon)
            guest.at = at


def _received(message: Message) -> Json:
    return {
        "topic": message.topic,
        "payload": message.text[:PAYLOAD_SHOWN_MAX],
        "id": message.user_property(EVENT_PROPERTY),
        "t": time.time() * 1000.0,
    }
