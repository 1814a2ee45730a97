"""A client that reconnects loses nothing and doubles nothing that it should not, whatever happens to its connection."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_following import Listening
from tests.probe import Probe

from geomq.broker.config.settings import Config, Listener, Persistence
from geomq.broker.local_federation import free_ports
from geomq.broker.server import Broker
from geomq.client import Client, ClientError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio


def config(port: int, folder: Path | None = None) -> Config:
    persistence = Persistence(enabled=False) if folder is None else Persistence(path=str(folder))
    return Config(listeners=(Listener(host="127.0.0.1", port=port),), persistence=persistence)


def cut(client: Client) -> None:
    """Break the connection as a network does."""
    assert client._link.channel is not None
    client._link.channel.close("cut by the test")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def collected(client: Client, stack: AsyncExitStack) -> Listening:
    listening = Listening(client)
    stack.push_async_callback(listening.stop)
    return listening


@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_is_lost_while_connections_break(qos: int) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(config(0)))
        subscriber = Client("127.0.0.1", broker.port, client_id="s", reconnect=True)
        publisher = Client("127.0.0.1", broker.port, reconnect=True)
        await stack.enter_async_context(subscriber)
        listening = await collected(subscriber, stack)
        await stack.enter_async_context(publisher)
        await subscriber.subscribe("t", qos=2)
        for number in range(60):
            await publisher.publish("t", str(number), qos=qos)
            if number % 20 == 5:
                cut(subscriber)
            if number % 20 == 15:
                cut(publisher)
        await until(lambda: b"59" in listening.got)
        sent = [str(number).encode() for number in range(60)]
        assert list(dict.fromkeys(listening.got)) == sent
        assert qos == 1 or listening.got == sent
        assert subscriber.session_present


async def test_calls_wait_for_the_connection_and_the_queue_is_bounded() -> None:
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        broker = Broker(config(port))
        await broker.start()
        client = Client("127.0.0.1", port, reconnect=True, timeout_s=5, outgoing_max=3)
        await stack.enter_async_context(client)
        listening = await collected(client, stack)
        await client.subscribe("t")
        await broker.stop()
        await until(lambda: not client.connected)
        for number in range(3):
            await client.publish("t", str(number), wait=False)
        with pytest.raises(ClientError, match="3 messages are queued for the server"):
            await client.publish("t", "3", wait=False)
        waiting = asyncio.create_task(client.publish("t", "4", qos=1))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await stack.enter_async_context(Broker(config(port)))
        await waiting
        await until(lambda: len(listening.got) == 4)
        assert listening.got == [b"0", b"1", b"2", b"4"]
        assert not client.session_present


async def test_a_broker_that_restarts_continues_the_session(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        broker = Broker(config(port, tmp_path))
        await broker.start()
        client = Client("127.0.0.1", port, client_id="c", reconnect=True)
        await stack.enter_async_context(client)
        listening = await collected(client, stack)
        await client.subscribe("t", qos=2)
        await broker.stop()
        await client.publish("t", "meanwhile", qos=2, wait=False)
        await stack.enter_async_context(Broker(config(port, tmp_path)))
        await until(lambda: listening.got == [b"meanwhile"])
        await until(lambda: not len(client._session.requests))
        assert client.session_present


async def test_a_client_whose_id_another_takes_does_not_fight_for_it() -> None:
    async with Broker(config(0)) as broker:
        client = Client("127.0.0.1", broker.port, client_id="c", reconnect=True)
        await client.__aenter__()
        probe, _ = await Probe.connect(broker.port, Connect("c"))
        async with probe:
            with pytest.raises(ClientError, match="is lost: the broker disconnected: "):
                await client.take()
            assert await probe.silent(0.5)
        await client.__aexit__(None, None, None)


async def test_leaving_waits_for_what_is_still_to_be_sent() -> None:
    async with Broker(config(0)) as broker, Client("127.0.0.1", broker.port) as watcher:
        await watcher.subscribe("t", qos=1)
        async with Client("127.0.0.1", broker.port) as client:
            for number in range(100):
                await client.publish("t", str(number), qos=1, wait=False)
        async with asyncio.timeout(5):
            got = [(await anext(watcher.messages)).payload for _ in range(100)]
        assert got == [str(number).encode() for number in range(100)]


async def test_leaving_says_what_could_not_be_sent() -> None:
    broker = Broker(config(0))
    await broker.start()
    client = Client("127.0.0.1", broker.port, reconnect=True, timeout_s=0.5)
    await client.__aenter__()
    await broker.stop()
    await until(lambda: not client.connected)
    await client.publish("t", qos=1, wait=False)
    await client.publish("t", qos=2, wait=False)
    with pytest.raises(ClientError, match="2 requests were not answered"):
        await client.__aexit__(None, None, None)


async def test_a_program_that_starts_again_goes_on_with_its_saved_session() -> None:
    async with Broker(config(0)) as broker, AsyncExitStack() as stack:
        lasting: dict[str, Any] = {"client_id": "c", "clean_start": False, "session_expiry_s": 60}
        watcher = await stack.enter_async_context(Client("127.0.0.1", broker.port))
        listening = await collected(watcher, stack)
        await watcher.subscribe("t", qos=2)
        client = Client("127.0.0.1", broker.port, **lasting)
        async with client:
            await client.publish("t", "1", qos=2)
            cut(client)
            await client.publish("t", "2", qos=2, wait=False)
            with pytest.raises(ClientError, match="cut by the test"):
                await client.take()
        async with Client("127.0.0.1", broker.port, state=client.save(), **lasting) as again:
            assert again.session_present
        await until(lambda: len(listening.got) == 2)
        assert listening.got == [b"1", b"2"]


async def test_unread_messages_come_again_to_a_kept_session() -> None:
    async with Broker(config(0)) as broker, Client("127.0.0.1", broker.port) as publisher:
        lasting: dict[str, Any] = {"client_id": "c", "clean_start": False, "session_expiry_s": 60}
        async with Client("127.0.0.1", broker.port, **lasting) as client:
            await client.subscribe("t", qos=2)
            for qos in (1, 2):
                await publisher.publish("t", str(qos), qos=qos)
            assert (await anext(client.messages)).text == "1"
            await until(lambda: len(client._inbox) == 1)
        async with Client("127.0.0.1", broker.port, **lasting) as client:
            assert (await anext(client.messages)).text == "2"
            await asyncio.sleep(0.1)
            assert not client._inbox


async def test_events_that_nobody_reads_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(config(0)) as broker, Client("127.0.0.1", broker.port, queue_max=5) as client:
        await client.subscribe("t", qos=1)
        for number in range(9):
            await client.publish("t", str(number))
        await until(lambda: client.dropped == 4)
        assert [message.text for message in await client.take()] == ["0", "1", "2", "3", "4"]
        for number in range(9):
            await client.publish("t", str(number), qos=1)
        got: list[str] = []
        while len(got) < 9:
            got += [message.text for message in await client.take()]
        assert got == [str(number) for number in range(9)]
        assert client.dropped == 4
    assert "5 wait, more are dropped" in caplog.text


async def test_a_client_that_is_not_connected_says_so() -> None:
    calls: list[Callable[[Client], Awaitable[object]]] = [
        lambda client: client.publish("t"),
        lambda client: client.subscribe("t"),
        lambda client: client.take(),
    ]
    for call in calls:
        with pytest.raises(ClientError, match="use it with `async with`"):
            await call(Client())


async def test_a_broker_that_refuses_the_client_is_left_alone() -> None:
    answers = iter([(Connack(), Disconnect()), (Connack(False, ReasonCode.NOT_AUTHORIZED),)])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"".join(encode(packet, V5) for packet in next(answers)))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = Client("127.0.0.1", server.sockets[0].getsockname()[1], reconnect=True)
        await client.__aenter__()
        with pytest.raises(ClientError, match="is lost: the broker refused to connect: Not authorized"):
            await client.take()
        await client.__aexit__(None, None, None)
    assert next(answers, None) is None
