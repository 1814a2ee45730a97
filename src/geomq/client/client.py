"""The client itself: connect somewhere, move, subscribe within a fence, publish to a fence, read what arrives.

Every place goes along as an MQTT 5 user property, or to a `$geo/` topic, exactly as any other MQTT client could
do it; this is convenience and checking, no protocol of its own. What MQTT asks of a client is the session's
(`geomq.mqtt.client.session`), what the network needs the link's (`geomq.transport.link`).
"""

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from geomq.client.calls import Calls
from geomq.client.errors import KINDS, ClientError, NoAnswerError, RefusedError
from geomq.client.message import Message, message_of
from geomq.client.packets import (
    FINAL,
    PASSING,
    UserProperties,
    Will,
    address_of,
    bytes_of,
    checked_filter,
    checked_handling,
    checked_qos,
    places,
    plain_errors,
    refusal,
)
from geomq.client.places import FenceLike, LocationLike, location_of, location_text_of
from geomq.mqtt.client import state as client_state
from geomq.mqtt.client.events import Acknowledged, Connected, ConnectRefused, Dropped, Ended, Event, Repeated, words
from geomq.mqtt.client.requests import QueueFull
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import PACKET_ID_MAX, ClientPolicy
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.topics import check_topic
from geomq.mqtt.codec.types import V5
from geomq.transport.link import ClientLink, End
from geomq.vocabulary import DETAILS_PROPERTY, LOCATION_TOPIC, ROAM_PROPERTY

if TYPE_CHECKING:
    from geomq.geo import Location

log = logging.getLogger("geomq.client")

LASTING_EXPIRY_S: Final = 300
"""How long the session of a client that roams or reconnects outlives its connection, unless it says so itself."""
BREATH: Final = 32
"""So many events of QoS 0 are written before everybody else has a turn."""


class Client:
    """`async with Client("broker.example", at=(52.5, 13.4)) as client:`"""

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = None,
        *,
        at: LocationLike | None = None,
        client_id: str | None = None,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | bool = False,
        websocket: bool = False,
        path: str = "/mqtt",
        keep_alive_s: int = 60,
        clean_start: bool = True,
        session_expiry_s: int = 0,
        will: Will | None = None,
        details: bool = False,
        timeout_s: float = 10.0,
        queue_max: int = 100_000,
        outgoing_max: int = 10_000,
        roam: bool = False,
        reconnect: bool = False,
        end_session: bool = False,
        state: bytes | None = None,
    ) -> None:
        self._location = None if at is None else location_of(at)
        self._asked = (((DETAILS_PROPERTY, "1"),) if details else ()) + (((ROAM_PROPERTY, "1"),) if roam else ())
        self._expiry_s = session_expiry_s or (LASTING_EXPIRY_S if roam or reconnect else 0)
        self._timeout_s = timeout_s
        self._reconnects, self._ends_session = reconnect, end_session
        self._queue_max = queue_max
        with plain_errors("cannot connect"):
            connect = Connect(
                client_id or "",
                clean_start=clean_start,
                keep_alive=keep_alive_s,
                will=None if will is None else will.packet(),
                username=username,
                password=None if password is None else password.encode(),
                properties=self._connect_properties(),
            )
            self._session = _session(connect, state, queue_max, outgoing_max, timeout_s)
        address = address_of(host, port, tls, path if websocket else None)
        self._link = ClientLink(
            self._session, address, handle=self._on_event, again=self._again, follows=roam, connect_s=timeout_s
        )
        self.dropped = 0
        """Events that were given up: arrived while too many waited to be read, or not taken by the broker."""
        self._lost: str | None = None
        self._refused: RefusedError | None = None
        self._kind: type[ClientError] = ClientError
        self._told = False
        """Whether somebody was told of a connection that is lost."""
        self._present = False
        self._calls = Calls(timeout_s, connected=lambda: self._session.up)
        self._task: asyncio.Task[End] | None = None
        self._inbox: deque[Publish] = deque()
        self._news = asyncio.Event()
        """Something arrived, was answered, or ended."""
        self._written = 0

    def _connect_properties(self) -> Properties:
        user = (*places(at=self._location), *self._asked)
        return Properties(session_expiry_interval=self._expiry_s or None, user_properties=user)

    def _is_at(self, place: "Location") -> None:
        """Note the place, which the client sends again on its next connection."""
        self._location = place
        session = self._session
        session.connect = msgspec.structs.replace(session.connect, properties=self._connect_properties())

    @property
    def address(self) -> str:
        """host:port of the broker; a client that roams may be at another than it first connected to."""
        return str(self._link.address)

    @property
    def location(self) -> "Location | None":
        """The location this client last sent."""
        return self._location

    @property
    def client_id(self) -> str:
        """The id in use; the broker's choice if none was given."""
        return self._session.client_id

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a broker right now."""
        return self._session.up

    @property
    def session_present(self) -> bool:
        """Whether the broker still had this client's session."""
        return self._present

    def save(self) -> bytes:
        """The session as bytes, with all that waits and is on its way, for `Client(state=...)` to go on with."""
        return client_state.save(self._session, time.monotonic())

    # Connecting.

    async def __aenter__(self) -> Self:
        self._told, self._lost, self._refused, self._kind = False, None, None, ClientError
        self._task = asyncio.create_task(self._link.run())
        self._task.add_done_callback(self._on_end)
        try:
            while not self._session.up and not self._task.done():
                await self._next_news()
        except BaseException:
            await self._stop()
            raise
        if self._lost is not None:
            self._told = True
            raise self._refused or self._kind(f"cannot connect to {self.address}: {self._lost}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = 0 if error is not None or self._lost is not None else await self._drain()
        await self._stop()
        if error is not None:
            return
        if left:
            raise NoAnswerError(f"{left} requests were not answered by {self.address} before it was closed")
        if self._lost is not None and not self._told:
            raise self._kind(f"the connection to {self.address} is lost: {self._lost}")

    async def _drain(self) -> int:
        """Give what waits to be sent a last chance; how much is left."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while len(self._session.requests) and self._lost is None:
                    await self._next_news()
        except TimeoutError:
            pass
        return len(self._session.requests) if self._lost is None else 0

    async def _stop(self) -> None:
        if self._task is not None:
            if self._ends_session:
                self._session.disconnect(expiry_s=0)
            self._task.remove_done_callback(self._on_end)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._give_up("the client was closed")

    def _again(self, end: End) -> bool:
        """Whether to connect once more: not if the broker would only refuse again."""
        final = (isinstance(end.said, ConnectRefused) and end.said.reason not in PASSING) or (
            isinstance(end.said, Ended) and end.said.reason in FINAL
        )
        comes_back = self._reconnects and self._session.known and not final
        if comes_back and end.up:
            log.warning("the connection to %s is lost: %s; connecting again", self.address, end.reason)
        return comes_back

    def _on_end(self, task: "asyncio.Task[End]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        end = End(f"the client failed: {error!r}") if error is not None else task.result()
        if isinstance(end.said, ConnectRefused):
            self._refused = refusal("connect", end.said.reason, end.said.properties)
        self._lost, self._kind = end.reason, KINDS.get(end.trouble, ClientError)
        self._give_up(end.reason)

    def _give_up(self, why: str) -> None:
        """Nobody will answer any more."""
        self._told |= self._calls.give_up(why)
        self._news.set()

    # What the session reports.

    def _on_event(self, event: Event) -> None:
        match event:
            case Publish():
                self._arrived(event)
            case Repeated():
                self._answer(event)
            case Acknowledged() | Dropped():
                if not self._calls.finish(event):
                    self._nobody_waits(event)
                self._news.set()
            case Connected(connack=connack, lost=lost):
                if lost:
                    log.warning("%s has lost the session; the client subscribed again", self.address)
                self._present = connack.session_present
                self._news.set()

    def _arrived(self, publish: Publish) -> None:
        if not publish.qos and len(self._inbox) >= self._queue_max:
            self._note_dropped(f"events arrive faster than they are read; {self._queue_max:,} wait, more are dropped")
            return
        self._inbox.append(publish)
        self._news.set()

    def _nobody_waits(self, event: Acknowledged | Dropped) -> None:
        """The answer to a request whose caller did not wait for it."""
        why = event.why if isinstance(event, Dropped) else event.refusal and words(event.refusal, event.properties)
        if why:
            self._note_dropped(f"{event.request.subject!r} was refused by the broker: {why}")

    def _note_dropped(self, why: str) -> None:
        if not self.dropped:
            log.warning(why)
        self.dropped += 1

    def _answer(self, publish: Publish | Repeated) -> None:
        """Acknowledge a message that was read."""
        channel = self._link.channel
        if channel is not None:
            channel.send(self._session.acknowledge(publish))

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # Calls.

    async def move(self, lat: float, lon: float, *, qos: int = 0) -> None:
        """Send the broker this client's new location."""
        place = location_of((lat, lon))
        self._is_at(place)
        with plain_errors("cannot send the location"):
            await self._publish(Publish(LOCATION_TOPIC, location_text_of(place).encode(), checked_qos(qos)), wait=True)

    async def subscribe(
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
        identifiers = () if identifier is None else (identifier,)
        properties = Properties(subscription_identifiers=identifiers, user_properties=places(fence=within))
        with plain_errors("cannot subscribe"):
            handling = checked_handling(retain_handling)
            name = checked_filter(topic_filter)
            asked = SubscribeRequest(name, checked_qos(qos), no_local, retain_as_published, handling)
            self._check_open()
            call = self._calls.new()
            self._session.subscribe(asked, properties=properties, tag=call)
            self._link.flush()
            answer = await self._calls.answered(call, "subscribe")
        return int(answer.reasons[0])

    async def unsubscribe(self, topic_filter: str) -> None:
        with plain_errors("cannot unsubscribe"):
            checked_filter(topic_filter)
            self._check_open()
            call = self._calls.new()
            self._session.unsubscribe(topic_filter, tag=call)
            self._link.flush()
            await self._calls.answered(call, "unsubscribe")

    async def publish(
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
        """Publish, to subscribers inside `to` only if given; `at` says where, and shows it to them.

        Returns when the event is written, with QoS 1 and 2 when the broker has it, and with `wait=False` at once.
        """
        properties = Properties(
            message_expiry_interval=expiry_s,
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=(*places(at=at, fence=to), *user),
        )
        with plain_errors("cannot publish"):
            check_topic(topic)
            packet = Publish(topic, bytes_of(payload), checked_qos(qos), retain, properties=properties)
            if at is not None:
                self._is_at(location_of(at))
            await self._publish(packet, wait=wait)

    async def _publish(self, packet: Publish, *, wait: bool) -> None:
        self._check_open()
        session, call = self._session, self._calls.new() if wait else None
        while True:
            try:
                session.publish(packet, asyncio.get_running_loop().time(), tag=call)
                break
            except QueueFull as error:
                if call is None:
                    raise ClientError(str(error)) from None
                await self._next_news()
                self._check_open()
        if call is None:
            self._link.flush()
            return
        if not packet.qos and self._link.channel is not None:
            self._link.channel.flush()
            self._written += 1
            if self._written % BREATH == 0:
                await asyncio.sleep(0)
        else:
            self._link.flush()
        await self._calls.answered(call, "publish")

    def _check_open(self) -> None:
        if self._task is None:
            raise ClientError("the client is not connected; use it with `async with`")
        if self._lost is not None:
            self._told = True
            raise self._kind(self._lost)

    # Reading.

    async def _more(self) -> None:
        """Wait until something may have arrived."""
        if self._lost is not None:
            self._told = True
            raise self._kind(f"the connection to {self.address} is lost: {self._lost}")
        self._check_open()
        await self._next_news()

    async def take(self) -> list[Message]:
        """The messages that have arrived, at least one: those of QoS 0 up to the first that is acknowledged by it."""
        while not self._inbox:
            await self._more()
        taken: list[Message] = []
        while self._inbox and len(taken) < BREATH:
            publish = self._inbox.popleft()
            taken.append(message_of(publish))
            if publish.qos:
                self._answer(publish)
                break
        return taken

    async def _received(self) -> AsyncIterator[Message]:
        while True:
            publish = self._inbox.popleft() if self._inbox else None
            if publish is None:
                await self._more()
            else:
                self._answer(publish)
                yield message_of(publish)

    @property
    def messages(self) -> AsyncIterator[Message]:
        """Everything that arrives, until the connection ends for good."""
        return self._received()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._received()


def _session(
    connect: Connect, state: bytes | None, queue_max: int, outgoing_max: int, timeout_s: float
) -> ClientSession:
    """The session of a client, perhaps one that was saved."""
    encode(connect, V5)
    policy = ClientPolicy(
        receive_max=queue_max if queue_max < PACKET_ID_MAX else None,
        queue_max=outgoing_max,
        manual=True,
        resubscribes=True,
        answer_s=timeout_s,
    )
    session = ClientSession(connect, policy)
    if state is not None:
        client_state.restore(session, state, time.monotonic())
    return session
