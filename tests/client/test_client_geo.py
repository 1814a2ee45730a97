"""The client with a GeoMQ broker: places decide who hears what."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests import patience

from geomq.broker.config.settings import Config, Listener, Persistence
from geomq.broker.server import Broker
from geomq.client import Client, ClientError, Message, RefusedError, Will
from geomq.errors import UsageError
from geomq.geo import Circle, Location
from geomq.mqtt.codec.packets import SubscribeRequest

BERLIN, POTSDAM, PARIS = (52.52, 13.405), (52.40, 13.06), (48.86, 2.35)


def with_broker(main: Callable[[int], Awaitable[None]]) -> None:
    async def limited() -> None:
        config = Config(listeners=(Listener(host="127.0.0.1", port=0),), persistence=Persistence(enabled=False))
        async with asyncio.timeout(60), Broker(config) as broker:
            await main(broker.port)

    patience.run(limited())


def at(port: int, place: tuple[float, float] | None = None) -> Client:
    return Client("127.0.0.1", port, at=place)


async def heard(client: Client, seconds: float = 0.2) -> list[str]:
    """The payloads that arrive within some time."""
    found: list[Message] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for message in client:
                found.append(message)  # noqa: PERF401 - what came before the timeout counts
    return [message.text for message in found]


def test_an_event_reaches_only_those_inside_its_fence() -> None:
    async def main(port: int) -> None:
        async with at(port, BERLIN) as near, at(port, PARIS) as far, at(port) as nowhere, at(port) as publisher:
            for client in (near, far, nowhere):
                await client.subscribe("alarm/#", qos=1)
            await publisher.publish("alarm/flood", "berlin", to=(*BERLIN, 5_000), qos=1)
            await publisher.publish("alarm/flood", "all", qos=1)
            assert await heard(near) == ["berlin", "all"]
            assert await heard(far) == ["all"]
            assert await heard(nowhere) == ["all"]

    with_broker(main)


def test_a_subscription_hears_only_publishers_inside_its_fence() -> None:
    async def main(port: int) -> None:
        async with at(port) as listener, at(port, BERLIN) as near, at(port, PARIS) as far:
            await listener.subscribe("t", within=Circle(Location(*POTSDAM), 50_000), qos=1)
            await far.publish("t", "far", qos=1)
            await near.publish("t", "near", qos=1)
            await far.move(*POTSDAM, qos=1)
            await far.publish("t", "came", qos=1)
            await near.publish("t", "gone", at=PARIS, qos=1)
            assert await heard(listener) == ["near", "came"]

    with_broker(main)


def test_moving_into_a_fence_brings_its_retained_event() -> None:
    async def main(port: int) -> None:
        async with at(port, PARIS) as walker, at(port) as publisher:
            await publisher.publish("sign", "welcome", to=(*BERLIN, 5_000), qos=1, retain=True)
            await walker.subscribe("sign", qos=1)
            assert await heard(walker) == []
            await walker.move(*BERLIN, qos=1)
            assert await heard(walker) == ["welcome"]

    with_broker(main)


def test_a_will_goes_to_its_fence() -> None:
    async def main(port: int) -> None:
        async with at(port, BERLIN) as near, at(port, PARIS) as far:
            for client in (near, far):
                await client.subscribe("gone")
            broken = Client("127.0.0.1", port, will=Will(topic="gone", payload="bye", to=(*BERLIN, 5_000)))
            async with broken:
                assert broken._link.channel is not None
                broken._link.channel.close("broken by the test")
                with suppress(Exception):
                    await heard(broken)
            assert await heard(near) == ["bye"]
            assert await heard(far) == []

    with_broker(main)


def test_a_fence_the_broker_refuses_is_an_error_with_its_reason() -> None:
    async def main(port: int) -> None:
        async with at(port) as client:
            bad = (("geo-fence", "POLYGON((0 0))"),)
            with pytest.raises(RefusedError) as caught:
                await client.publish("t", b"x", user=bad, qos=1)
            assert caught.value.code == 0x99
            await client.publish("t", b"x", qos=1)

    with_broker(main)


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [("", b"x", "topic is empty"), ("a", bytes(3_000_000), "the packet has 3,000,009 bytes; the broker accepts at")],
)
def test_what_the_broker_would_hang_up_for_is_not_sent(topic: str, payload: bytes, text: str) -> None:
    async def main(port: int) -> None:
        async with at(port) as client:
            with pytest.raises(UsageError, match=text):
                await client.publish(topic, payload)
            await client.publish("a", b"x", qos=1)

    with_broker(main)


def test_the_largest_packet_is_sent() -> None:
    async def main(port: int) -> None:
        async with at(port) as client:
            most = client._session.terms.packet_max
            await client.publish("a", bytes(most - 10), qos=1)
            with pytest.raises(UsageError, match="at most"):
                await client.publish("a", bytes(most - 9), qos=1)

    with_broker(main)


def test_a_broker_that_hangs_up_is_heard_at_once_and_in_its_own_words() -> None:
    async def asked(port: int) -> None:
        async with asyncio.timeout(60), at(port) as client:
            await client.subscribe("$share/g/x", no_local=True)

    async def unasked(port: int) -> None:
        async with asyncio.timeout(60), at(port) as client:
            client._session.subscribe(SubscribeRequest("$share/x"))
            client._link.flush()
            while client.connected:
                await asyncio.sleep(0.01)

    with pytest.raises(ClientError, match=r"^cannot subscribe: the broker disconnected: .*share"):
        with_broker(asked)
    with pytest.raises(ClientError, match=r"^the connection to .* is lost: the broker disconnected: .*share"):
        with_broker(unasked)


def test_a_broker_that_dies_is_not_waited_for() -> None:
    async def main() -> None:
        config = Config(listeners=(Listener(host="127.0.0.1", port=0),), persistence=Persistence(enabled=False))
        async with asyncio.timeout(60), Broker(config) as broker, at(broker.port) as client:
            await client.publish("a", b"x", qos=1)
            await broker.stop()
            await client.publish("a", b"x", qos=1)

    with pytest.raises(ClientError, match=r"^cannot publish: the broker "):
        patience.run(main())
