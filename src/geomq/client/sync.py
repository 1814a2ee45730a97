"""The client for programs without asyncio: the same calls, each of which returns when it is done.

A thread with an event loop of its own runs the asynchronous client; nothing is decided here. Calls may come from any
thread, several at a time.
"""

import asyncio
import concurrent.futures
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from geomq.client import client as asynchronous
from geomq.client.errors import ClientError
from geomq.client.message import Message
from geomq.client.packets import UserProperties, Will
from geomq.client.places import FenceLike, LocationLike

if TYPE_CHECKING:
    from geomq.geo import Location

log = logging.getLogger("geomq.client")

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What the client can be given beside its broker, as the asynchronous one."""

    at: LocationLike | None
    client_id: str | None
    username: str | None
    password: str | None
    tls: ssl.SSLContext | bool
    websocket: bool
    path: str
    keep_alive_s: int
    clean_start: bool
    session_expiry_s: int
    will: Will | None
    details: bool
    timeout_s: float
    queue_max: int
    outgoing_max: int
    roam: bool
    reconnect: bool
    end_session: bool
    state: bytes | None


class Client:
    """`with Client("broker.example", at=(52.5, 13.4)) as client:`

    Messages are read by iterating over the client, with `receive`, or by `on_message`, which is called for one message
    after the other in a thread of its own and may use the client.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = None,
        *,
        on_message: Callable[[Message], object] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._client = asynchronous.Client(host, port, **options)
        self._on_message = on_message
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: threading.Thread | None = None
        self._ahead: deque[Message] = deque()

    @property
    def address(self) -> str:
        """host:port of the broker."""
        return self._client.address

    @property
    def location(self) -> "Location | None":
        """The location this client last sent."""
        return self._client.location

    @property
    def client_id(self) -> str:
        """The id in use."""
        return self._client.client_id

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a broker right now."""
        return self._client.connected

    @property
    def session_present(self) -> bool:
        """Whether the broker still had this client's session."""
        return self._client.session_present

    @property
    def dropped(self) -> int:
        """Events that were given up."""
        return self._client.dropped

    def save(self) -> bytes:
        """The session as bytes, for `Client(state=...)` to go on with."""

        async def saved() -> bytes:
            return self._client.save()

        return self._client.save() if self._loop is None else self._run(saved())

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="geomq-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._close_loop()
            raise
        if self._on_message is not None:
            self._reader = threading.Thread(target=self._read, name="geomq-messages", daemon=True)
            self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._client.__aexit__(kind, error, trace))
        finally:
            if self._reader is not None and self._reader is not threading.current_thread():
                self._reader.join()
            self._close_loop()

    def _close_loop(self) -> None:
        loop, self._loop = self._loop, None
        assert loop is not None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """Have the loop do it, and wait for the result."""
        if self._loop is None:
            call.close()
            raise ClientError("the client is not connected; use it with `with`")
        waiting = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    # Calls.

    def move(self, lat: float, lon: float, *, qos: int = 0) -> None:
        """Send the broker this client's new location."""
        self._run(self._client.move(lat, lon, qos=qos))

    def subscribe(
        self,
        topic_filter: str,
        *,
        within: FenceLike | None = None,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int | None = None,
    ) -> int:
        """Subscribe, to events published inside `within` only if given; returns the granted QoS."""
        return self._run(
            self._client.subscribe(
                topic_filter,
                within=within,
                qos=qos,
                no_local=no_local,
                retain_as_published=retain_as_published,
                retain_handling=retain_handling,
                identifier=identifier,
            )
        )

    def unsubscribe(self, topic_filter: str) -> None:
        self._run(self._client.unsubscribe(topic_filter))

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        to: FenceLike | None = None,
        at: LocationLike | None = None,
        qos: int = 0,
        retain: bool = False,
        user: UserProperties = (),
        expiry_s: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        wait: bool = True,
    ) -> None:
        """Publish, to subscribers inside `to` only if given; `at` says where, and shows it to them."""
        self._run(
            self._client.publish(
                topic,
                payload,
                to=to,
                at=at,
                qos=qos,
                retain=retain,
                user=user,
                expiry_s=expiry_s,
                content_type=content_type,
                response_topic=response_topic,
                correlation_data=correlation_data,
                wait=wait,
            )
        )

    # Reading.

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if none arrives in time."""
        if not self._ahead:
            self._ahead.extend(self._run(self._take(timeout_s)))
        return self._ahead.popleft() if self._ahead else None

    async def _take(self, timeout_s: float | None) -> list[Message]:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._client.take()
        except TimeoutError:
            return []

    def __iter__(self) -> Iterator[Message]:
        """Everything that arrives, until the connection ends for good."""
        while True:
            message = self.receive()
            assert message is not None
            yield message

    def _read(self) -> None:
        assert self._on_message is not None
        try:
            for message in self:
                try:
                    self._on_message(message)
                except Exception:
                    log.exception("on_message failed for an event on %r", message.topic)
        except (ClientError, concurrent.futures.CancelledError):
            # Who leaves the `with` block hears of it.
            return
