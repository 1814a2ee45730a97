"""Every caller hears what became of its own request, once."""

import asyncio
from contextlib import suppress

import pytest

from geomq.client.calls import Calls
from geomq.client.errors import ClientError, RefusedError
from geomq.errors import UsageError
from geomq.mqtt.client.events import Acknowledged, Dropped, Request
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode

pytestmark = pytest.mark.anyio
DENIED = (ReasonCode.NOT_AUTHORIZED,)


async def test_a_refusal_belongs_to_its_own_call() -> None:
    calls = Calls(5, connected=lambda: True)
    first, second = calls.new(), calls.new()
    properties = Properties(reason_string="not\nyours")
    assert calls.finish(Acknowledged(Request(Publish("t"), first), DENIED, properties))
    assert calls.finish(Acknowledged(Request(Publish("t"), second)))
    with pytest.raises(RefusedError, match=r"^the broker refused to publish: not yours \(0x87\)$"):
        await calls.answered(first, "publish")
    assert (await calls.answered(second, "publish")).refusal is None


async def test_what_cannot_be_sent_is_a_usage_error() -> None:
    calls = Calls(5, connected=lambda: True)
    call = calls.new()
    calls.finish(Dropped(Request(Publish("t"), call), "too large"))
    with pytest.raises(UsageError, match="too large"):
        await calls.answered(call, "publish")


async def test_only_time_spent_connected_counts() -> None:
    connected = False
    calls = Calls(0.05, connected=lambda: connected)
    waiting = asyncio.create_task(calls.answered(calls.new(), "publish"))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    connected = True
    with pytest.raises(ClientError, match="no answer in time"):
        await waiting


async def test_a_connection_that_ends_ends_all_calls_and_nobody_else_is_told() -> None:
    calls = Calls(5, connected=lambda: True)
    waiting, gone = calls.new(), asyncio.create_task(calls.answered(calls.new(), "publish"))
    await asyncio.sleep(0)
    gone.cancel()
    with suppress(asyncio.CancelledError):
        await gone
    assert calls.give_up("lost")
    with pytest.raises(ClientError, match="lost"):
        await calls.answered(waiting, "publish")
    assert not calls.give_up("lost again")
    assert not calls.finish(Acknowledged(Request(Publish("t"))))
    assert calls.finish(Acknowledged(Request(Publish("t"), waiting)))
