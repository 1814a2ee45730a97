"""Connections over every transport, and servers that are slow, silent or hostile."""

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from geomq.broker.config.settings import Config, Listener, Persistence
from geomq.broker.server import Broker
from geomq.client import Client, ClientError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Publish
from geomq.mqtt.codec.types import V5
from geomq.transport import channel as channels
from geomq.transport.channel import Channel

pytestmark = pytest.mark.anyio
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def certificate(folder: Path) -> Path:
    """A certificate for localhost that signs itself, with its key in the same file."""
    name, key = folder / "server.pem", folder / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += f" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {key} -out {name}"
    subprocess.run(command.split(), check=True, capture_output=True)
    name.write_text(name.read_text() + key.read_text())
    return name


@pytest.mark.parametrize("kind", ["tcp", "tls", "websocket", "websocket_tls"])
async def test_events_cross_every_transport(kind: Any, tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    keyed: dict[str, Any] = {}
    if "tls" in kind:
        keyed = {"certfile": str(pem), "keyfile": str(pem)}
    listener = Listener(kind=kind, host="127.0.0.1", port=0, **keyed)
    config = Config(listeners=(listener,), persistence=Persistence(enabled=False))
    context = ssl.create_default_context(cafile=str(pem)) if keyed else False
    async with Broker(config) as broker:
        port = broker.addresses[0][2]
        async with Client("127.0.0.1", port, tls=context, websocket="websocket" in kind, reconnect=True) as client:
            await client.subscribe("t", qos=2)
            payloads = [bytes(size) for size in (0, 1, 125, 126, 70_000, 300_000)]
            for payload in payloads:
                await client.publish("t", payload, qos=2)
            assert client._link.channel is not None
            client._link.channel.close("cut by the test")
            await client.publish("t", b"after", qos=1)
            got: list[bytes] = []
            while len(got) < 7:
                got += [message.payload for message in await client.take()]
            assert got == [*payloads, b"after"]


async def test_a_broker_whose_certificate_is_not_trusted_is_one_clear_line(tmp_path: Path) -> None:
    pem = str(certificate(tmp_path))
    listener = Listener(kind="tls", host="127.0.0.1", port=0, certfile=pem, keyfile=pem)
    async with Broker(Config(listeners=(listener,), persistence=Persistence(enabled=False))) as broker:
        with pytest.raises(ClientError, match=r"^cannot connect to localhost:.*certificate verify failed"):
            await Client("localhost", broker.addresses[0][2], tls=True).__aenter__()


async def served(serve: Serve, main: Callable[[int], Awaitable[None]]) -> None:
    """Run `main` with the port of a server that treats every connection as `serve` does."""
    tasks: list[asyncio.Task[Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        await main(server.sockets[0].getsockname()[1])
        await asyncio.gather(*tasks)


async def read_all(client: Client) -> None:
    while True:
        await client.take()


async def expect_failure(port: int, match: str, **options: Any) -> None:
    """Connecting ends with this error."""
    with pytest.raises(ClientError, match=match):
        await Client("127.0.0.1", port, timeout_s=0.5, **options).__aenter__()


ANSWERS = {
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n": "handshake failed: .*404",
    b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n": "handshake failed: .*Accept",
    b"SSH-2.0-OpenSSH\r\n\r\n": "handshake failed",
    b"x" * 100_000: "handshake failed",
}


@pytest.mark.parametrize("answer", ANSWERS, ids=["404", "no accept", "ssh", "noise"])
async def test_what_is_no_websocket_is_one_clear_line(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()

    await served(serve, lambda port: expect_failure(port, ANSWERS[answer], websocket=True))


@pytest.mark.parametrize("options", [{}, {"websocket": True}])
async def test_a_server_that_says_nothing_is_not_waited_for(options: dict[str, Any]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    await served(serve, lambda port: expect_failure(port, r"no CONNACK within 0\.5 s", **options))


async def test_a_server_that_breaks_the_protocol_hears_why() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(encode(Connack(), V5) + b"\x30\x03\0\1#")
        heard.append(await reader.read())

    async def main(port: int) -> None:
        client = Client("127.0.0.1", port)
        await client.__aenter__()
        with pytest.raises(ClientError, match="is lost: topic '#' contains a wildcard"):
            await client.take()
        await client.__aexit__(None, None, None)

    await served(serve, main)
    assert heard == [b"\xe0\x01\x81"]


async def test_a_server_that_falls_silent_is_left() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(encode(Connack(), V5))
        await reader.read()

    async def main(port: int) -> None:
        client = Client("127.0.0.1", port, keep_alive_s=1, timeout_s=0.3)
        await client.__aenter__()
        with pytest.raises(ClientError, match="is lost: the broker does not answer"):
            await client.take()
        await client.__aexit__(None, None, None)

    await served(serve, main)


async def test_a_server_that_takes_no_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "UNREAD_ANSWERS_MAX", 50)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(encode(Connack(), V5))
        for number in range(1, 200):
            writer.write(encode(Publish("t", b"", 1, packet_id=number), V5))
        await reader.read()

    async def main(port: int) -> None:
        client = Client("127.0.0.1", port)
        await client.__aenter__()
        assert isinstance(client._link.channel, Channel)
        client._link.channel.pause_writing()
        with pytest.raises(ClientError, match="is lost: the broker stopped reading"):
            await read_all(client)
        await client.__aexit__(None, None, None)

    await served(serve, main)


async def test_writing_waits_while_the_network_takes_nothing() -> None:
    config = Config(listeners=(Listener(host="127.0.0.1", port=0),), persistence=Persistence(enabled=False))
    async with Broker(config) as broker, Client("127.0.0.1", broker.port) as client:
        assert client._link.channel is not None
        client._link.channel.pause_writing()
        waiting = asyncio.create_task(client.publish("t"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        client._link.channel.resume_writing()
        await waiting
