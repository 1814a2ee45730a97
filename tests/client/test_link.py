"""The connection keeps what the broker answered until somebody has been told."""

import asyncio

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from geomq.client.errors import ClientError, RefusedError
from geomq.client.link import Link


def test_a_refusal_says_what_and_why_in_one_line() -> None:
    error = RefusedError("publish", 0x99, "the fence is no fence")
    assert str(error) == "the broker refused to publish: the fence is no fence (0x99)"
    assert isinstance(error, ClientError)


def test_a_refusal_belongs_to_its_own_call_and_is_told_once() -> None:
    async def main() -> None:
        link = Link("127.0.0.1", 1)
        code = ReasonCode(PacketTypes.PUBACK, identifier=0x87)
        with (
            link._pending_call(1, asyncio.Event(), link._pending_publishes),
            pytest.raises(RefusedError, match="Not authorized"),
        ):
            refuse(link, 2, code)
        with link._pending_call(2, asyncio.Event(), link._pending_publishes):
            pass
        assert link._refusals == {}

    def refuse(link: Link, mid: int, code: ReasonCode) -> None:
        with link._pending_call(mid, asyncio.Event(), link._pending_publishes):
            link._on_publish(link._client, None, mid, code, None)  # type: ignore[arg-type]

    asyncio.run(main())


def test_answers_nobody_waits_for_are_not_kept() -> None:
    async def main() -> None:
        link = Link("127.0.0.1", 1)
        code = ReasonCode(PacketTypes.PUBACK, identifier=0x87)
        for mid in range(100):
            link._on_publish(link._client, None, mid, code, None)  # type: ignore[arg-type]
        assert link._refusals == {}

    asyncio.run(main())
