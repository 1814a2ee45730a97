"""A client that roams goes where brokers send it, with its session, and whoever uses it hardly notices."""

import asyncio
import re
from contextlib import AsyncExitStack

import pytest
from tests.broker.federated import federation, until
from tests.broker.roaming.test_roaming import quick

from geomq.broker.server import Broker
from geomq.client import Client
from geomq.client.errors import ClientError
from geomq.transport import link

pytestmark = pytest.mark.anyio
PARIS, FRANKFURT, COLUMBUS = (48.88, 2.36), (50.11, 8.66), (39.96, -83.0)


class Listening:
    """Notes every payload a client receives."""

    def __init__(self, client: Client) -> None:
        self.got: list[bytes] = []
        self.trouble: Exception | None = None
        self._task = asyncio.create_task(self._listen(client))

    async def _listen(self, client: Client) -> None:
        try:
            async for message in client:
                self.got.append(bytes(message.payload))
        except ClientError as error:
            self.trouble = error

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("client_id", ["r", None], ids=["own id", "assigned id"])
async def test_a_client_that_moves_ends_up_at_the_right_broker_and_gets_everything_once(client_id: str | None) -> None:
    async with federation(quick()) as brokers, AsyncExitStack() as stack:
        client = Client("127.0.0.1", brokers["paris"].port, client_id=client_id, at=PARIS, roam=True)
        await stack.enter_async_context(client)
        listening = Listening(client)
        stack.push_async_callback(listening.stop)
        await client.subscribe("t", qos=2)
        publisher = await stack.enter_async_context(Client("127.0.0.1", brokers["columbus"].port))
        await asyncio.sleep(0.3)
        sent = 0
        for place, name in ((FRANKFURT, "frankfurt"), (COLUMBUS, "columbus"), (PARIS, "paris")):
            await client.move(*place, qos=1)
            while client.address != address(brokers[name]):
                await publisher.publish("t", str(sent).encode(), qos=2)
                sent += 1
                await asyncio.sleep(0.02)
        await until(lambda: len(listening.got) >= sent)
        assert listening.got == [str(number).encode() for number in range(sent)]
        await client.publish("t", b"own", qos=1)
        await until(lambda: listening.got[-1:] == [b"own"])
        assert client.session_present


async def test_a_client_at_the_wrong_broker_is_at_the_right_one_before_it_is_connected() -> None:
    async with federation(quick()) as brokers:
        await asyncio.sleep(0.3)
        async with Client("127.0.0.1", brokers["paris"].port, at=COLUMBUS, roam=True) as client:
            assert client.address == address(brokers["columbus"])
            await client.publish("t", b"x", qos=1)


async def test_what_is_published_and_subscribed_while_a_client_is_sent_on_is_not_lost() -> None:
    async with federation(quick()) as brokers, AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(Client("127.0.0.1", brokers["columbus"].port))
        watching = Listening(watcher)
        stack.push_async_callback(watching.stop)
        await watcher.subscribe("out", qos=2)
        client = Client("127.0.0.1", brokers["paris"].port, client_id="r", at=PARIS, roam=True)
        await stack.enter_async_context(client)
        listening = Listening(client)
        stack.push_async_callback(listening.stop)
        await asyncio.sleep(0.3)
        await client.move(*FRANKFURT, qos=1)
        sent = 0
        while client.address != address(brokers["frankfurt"]):
            await client.publish("out", str(sent).encode(), qos=2)
            await client.subscribe(f"in/{sent}", qos=1)
            sent += 1
        await until(lambda: len(watching.got) >= sent)
        assert watching.got == [str(number).encode() for number in range(sent)]
        await asyncio.sleep(0.3)
        for number in range(sent):
            await watcher.publish(f"in/{number}", b"", qos=1)
        await until(lambda: len(listening.got) == sent)
        assert listening.trouble is None


async def test_a_client_that_does_not_roam_stays() -> None:
    async with federation(quick()) as brokers:
        await asyncio.sleep(0.3)
        async with Client("127.0.0.1", brokers["paris"].port, client_id="r", at=COLUMBUS) as client:
            await asyncio.sleep(1.5)
            await client.publish("t", b"x", qos=1)
            assert client.address == address(brokers["paris"])


@pytest.mark.parametrize("where", ["127.0.0.1:1", "127.0.0.1:99999", "a..b:1883"])
async def test_a_client_sent_to_a_broker_that_is_not_there_says_so(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "ATTEMPTS_MAX", 2)
    configured = quick()
    async with federation(configured) as brokers:
        await asyncio.sleep(0.3)
        brokers["paris"].core.node.session_searches.addresses.learn(brokers["columbus"].core.node.me, where)
        client = Client("127.0.0.1", brokers["paris"].port, at=COLUMBUS, roam=True, timeout_s=20)
        with pytest.raises(ClientError, match=f"redirected to {re.escape(where)}"):
            await client.__aenter__()
