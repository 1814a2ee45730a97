"""The connection underneath: aiomqtt, made to say what the broker answered.

aiomqtt forgets the reason codes of PUBACK and PUBREC and the reason strings of all answers; here they are kept
until the call that caused them has raised them. A call that waits for an answer ends when the connection does.

A link that follows goes where a broker sends it ("use another server") without anybody above noticing: what was on its
way is sent again there, with the same packet identifiers.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import Any, Self, TypeVar

import aiomqtt
from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import ConnectFlags, DisconnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from geomq.client.errors import RefusedError

T = TypeVar("T")


USE_ANOTHER_SERVER, SERVER_MOVED = 0x9C, 0x9D
SENT_ON_MAX = 8
"""How often in a row a link is sent on before it gives up."""
RETRIES_S = (0.1, 0.5, 1.0, 2.0, 4.0)


class Link(aiomqtt.Client):
    """An aiomqtt client that raises RefusedError when the broker says no, and follows where it is sent if asked to."""

    def __init__(self, hostname: str, port: int, *, follows: bool = False, **options: Any) -> None:
        super().__init__(hostname, port, **options)
        self.moves = 0
        """How often it went to another broker since it was connected first."""
        self._follows = follows
        self._sent_on = 0
        self._journey: asyncio.Task[None] | None = None
        self._welcomed = asyncio.Event()
        self._refusals: dict[int, RefusedError] = {}
        self._watch_pubrec()
        self.welcome: Properties | None = None
        self.session_present = False
        self.refused: RefusedError | None = None
        self.lost: str | None = None
        """Why the connection is gone, if it was not closed here."""

    def _watch_pubrec(self) -> None:
        """paho drops the reason of a PUBREC and goes on as if all were well; note it first."""
        paho = self._client
        handle = paho._handle_pubrec

        def handle_noting_refusals() -> Any:
            packet = bytes(paho._in_packet["packet"])
            mid = int.from_bytes(packet[:2])
            if len(packet) > 2 and packet[2] >= 0x80 and mid in self._pending_publishes:
                code = ReasonCode(PacketTypes.PUBREC)
                code.unpack(packet[2:])
                properties = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
                if len(packet) > 3:
                    properties.unpack(packet[3:])  # type: ignore[no-untyped-call]
                self._refusals[mid] = _refusal("publish", code, properties)
            return handle()

        paho._handle_pubrec = handle_noting_refusals  # type: ignore[method-assign]

    def _on_connect(
        self,
        client: PahoClient,
        userdata: Any,
        flags: ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        address = self._sent_to(reason_code, properties)
        if address is not None:
            self._go(address)
            return
        self.welcome = properties
        self.session_present = flags.session_present
        if reason_code.is_failure:
            self.refused = _refusal("connect", reason_code, properties)
        else:
            self._sent_on = 0
            assigned = getattr(properties, "AssignedClientIdentifier", None)
            if assigned and self._follows:  # elsewhere the client is known by it
                client._client_id = assigned.encode()
        self._welcomed.set()
        super()._on_connect(client, userdata, flags, reason_code, properties)

    # Following.

    @property
    def address(self) -> str:
        return f"{self._hostname}:{self._port}"

    async def __aenter__(self) -> Self:
        self.lost = None
        await super().__aenter__()
        self._disconnected.add_done_callback(_heard)
        return self

    async def __aexit__(self, *details: Any) -> None:
        if self._journey is not None:
            self._journey.cancel()
            await asyncio.gather(self._journey, return_exceptions=True)
        await super().__aexit__(*details)

    async def arrived(self) -> None:
        """Wait until the link is not under way."""
        while self._journey is not None and not self._journey.done():
            await asyncio.wait([self._journey])

    def say_at_connect(self, properties: Properties) -> None:
        """What CONNECT says from now on."""
        self._properties = properties

    def _sent_to(self, reason_code: ReasonCode, properties: Properties | None) -> str | None:
        if not self._follows or reason_code.value not in (USE_ANOTHER_SERVER, SERVER_MOVED):
            return None
        references = str(getattr(properties, "ServerReference", "")).split()
        if not references or self._sent_on >= SENT_ON_MAX:
            return None
        return references[0]

    def _on_disconnect(
        self,
        client: PahoClient,
        userdata: Any,
        flags: DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if self._journey is not None and not self._journey.done():
            return  # the journey sees for itself whether it gets anywhere
        address = self._sent_to(reason_code, properties)
        if address is None:
            if flags.is_disconnect_packet_from_server:
                self.lost = f"the broker hung up: {_reason(reason_code, properties)}"
            elif reason_code.is_failure:
                self.lost = "the broker is gone, or hung up without a reason"
            super()._on_disconnect(client, userdata, flags, reason_code, properties)
        else:
            self._go(address)

    def _on_socket_register_write(self, client: PahoClient, userdata: Any, sock: Any) -> None:
        """As aiomqtt does it, but by the time the loop gets to it the broker may have closed the socket."""

        def write() -> None:
            try:
                client.loop_write()
            except Exception as error:
                if not self._disconnected.done():
                    self._disconnected.set_exception(error)

        def register() -> None:
            if sock.fileno() > -1:
                self._loop.add_writer(sock.fileno(), write)

        self._loop.call_soon_threadsafe(register)

    def _go(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._sent_on += 1
        if host and port.isdecimal():
            self._hostname, self._port = host.strip("[]"), int(port)
        else:
            self._hostname = address
        if self._journey is None or self._journey.done():
            self._journey = self._loop.create_task(self._travel())

    async def _travel(self) -> None:
        """Connect where the link was sent, and wait there to be welcomed; a broker may send it on once more."""
        self._clean_start = self._clean_start if not self._connected.done() else False
        trouble: Exception = aiomqtt.MqttError(f"sent to {self.address}, which does not answer")
        for pause_s in RETRIES_S:
            self._welcomed.clear()
            sent_on = self._sent_on
            try:
                await self._loop.run_in_executor(None, self._client_connect)
                async with asyncio.timeout(self.timeout):
                    while not self._welcomed.is_set() and self._sent_on == sent_on and self._client.socket():
                        await asyncio.sleep(0.01)
            except (OSError, TimeoutError, ValueError, OverflowError) as error:
                trouble = aiomqtt.MqttError(f"sent to {self.address}: {error or 'no answer'}")
            if self._welcomed.is_set():
                break
            await asyncio.sleep(0 if self._sent_on != sent_on else pause_s)
        if self._welcomed.is_set() and self.refused is None:
            self.moves += 1
            for pending in self._pending_subscribes.values():
                if not pending.done():
                    pending.set_exception(aiomqtt.MqttError("sent to another broker meanwhile"))
        elif not self._connected.done():
            self._connected.set_exception(trouble)
        elif not self._disconnected.done():
            self._disconnected.set_exception(self.refused or trouble)

    def _on_publish(
        self, client: PahoClient, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        if reason_code.is_failure and mid in self._pending_publishes and mid not in self._refusals:
            self._refusals[mid] = _refusal("publish", reason_code, properties)
        super()._on_publish(client, userdata, mid, reason_code, properties)

    def _on_subscribe(
        self,
        client: PahoClient,
        userdata: Any,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        for code in reason_codes:
            if code.is_failure and mid in self._pending_subscribes:
                self._refusals[mid] = _refusal("subscribe", code, properties)
        super()._on_subscribe(client, userdata, mid, reason_codes, properties)

    async def _wait_for(self, fut: Awaitable[T], timeout: float | None) -> T:
        if fut is self._disconnected:
            return await super()._wait_for(fut, timeout)
        answer = asyncio.ensure_future(fut)
        await asyncio.wait(
            (answer, self._disconnected), timeout=timeout or self.timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if answer.done():
            return answer.result()
        answer.cancel()
        raise aiomqtt.MqttError("the connection is lost" if self._disconnected.done() else "no answer in time")

    @contextlib.contextmanager
    def _pending_call(self, mid: int, value: T, pending_dict: dict[int, T]) -> Iterator[None]:
        try:
            with super()._pending_call(mid, value, pending_dict):
                yield
        finally:
            refusal = self._refusals.pop(mid, None)
        if refusal is not None:
            raise refusal


def _heard(lost: "asyncio.Future[None]") -> None:
    """Take note of how a connection ended, so that asyncio does not."""
    if not lost.cancelled():
        lost.exception()


def _refusal(action: str, code: ReasonCode, properties: Properties | None) -> RefusedError:
    return RefusedError(action, int(code.value), _reason(code, properties))


def _reason(code: ReasonCode, properties: Properties | None) -> str:
    """The broker's own words, or for want of them those of MQTT."""
    return " ".join(str(getattr(properties, "ReasonString", None) or code).split())
