"""The connection underneath: aiomqtt, made to say what the broker answered.

aiomqtt forgets the reason codes of PUBACK and PUBREC and the reason strings of all answers; here they are kept
until the call that caused them has raised them.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

import aiomqtt
from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import ConnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from geomq.client.errors import RefusedError

T = TypeVar("T")


class Link(aiomqtt.Client):
    """An aiomqtt client that raises RefusedError when the broker says no."""

    def __init__(self, hostname: str, port: int, **options: Any) -> None:
        super().__init__(hostname, port, **options)
        self._refusals: dict[int, RefusedError] = {}
        self._watch_pubrec()
        self.welcome: Properties | None = None
        self.session_present = False
        self.refused: RefusedError | None = None

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
        self.welcome = properties
        self.session_present = flags.session_present
        if reason_code.is_failure:
            self.refused = _refusal("connect", reason_code, properties)
        super()._on_connect(client, userdata, flags, reason_code, properties)

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

    @contextlib.contextmanager
    def _pending_call(self, mid: int, value: T, pending_dict: dict[int, T]) -> Iterator[None]:
        try:
            with super()._pending_call(mid, value, pending_dict):
                yield
        finally:
            refusal = self._refusals.pop(mid, None)
        if refusal is not None:
            raise refusal


def _refusal(action: str, code: ReasonCode, properties: Properties | None) -> RefusedError:
    text = getattr(properties, "ReasonString", None) or str(code)
    return RefusedError(action, int(code.value), " ".join(str(text).split()))
