"""The client against a real MQTT 5 broker that knows nothing of places: the plain part, and what is sent."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests import patience

from geomq.broker.local_federation import free_ports
from geomq.client import Client, ClientError, Message, RefusedError, Will
from geomq.errors import GeometryError, UsageError
from geomq.geo import Circle, Location


class Mosquitto(NamedTuple):
    """A running broker: a plain port, one with TLS, and the certificate to trust."""

    port: int
    tls_port: int
    cafile: Path


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    openssl = shutil.which("openssl")
    if binary is None or openssl is None:
        pytest.skip("mosquitto or openssl is not installed: the client is not tested against it")
    folder = tmp_path_factory.mktemp("mosquitto")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    command += f" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {folder}/key -out {folder}/cert"
    subprocess.run(command.split(), check=True, capture_output=True)
    port, tls_port = free_ports(2)
    (folder / "acl").write_text("topic readwrite plain/#\ntopic readwrite $geo/#\nuser alice\ntopic #\n")
    (folder / "conf").write_text(
        f"user root\nallow_anonymous true\nacl_file {folder}/acl\n"
        f"listener {port} 127.0.0.1\nlistener {tls_port} 127.0.0.1\ncertfile {folder}/cert\nkeyfile {folder}/key\n"
    )
    process = subprocess.Popen([binary, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", tls_port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield Mosquitto(port, tls_port, folder / "cert")
    finally:
        process.terminate()
        process.wait(10)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main()

    patience.run(limited())


async def first(client: Client) -> Message:
    async for message in client:
        return message
    raise AssertionError("nothing arrived")


def test_events_arrive_with_payload_and_properties(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        async with Client("127.0.0.1", mosquitto.port) as client:
            assert await client.subscribe("plain/#", qos=2) == 2
            await client.publish(
                "plain/a",
                "héllo",
                qos=1,
                user=(("k", "1"), ("k", "2")),
                expiry_s=100,
                content_type="text/plain",
                response_topic="plain/reply",
                correlation_data=b"\x00\x01",
            )
            message = await first(client)
            assert (message.topic, message.text, message.qos, message.retain) == ("plain/a", "héllo", 1, False)
            assert message.user == (("k", "1"), ("k", "2"))
            assert message.user_property("k") == "1"
            assert (message.content_type, message.response_topic) == ("text/plain", "plain/reply")
            assert message.correlation_data == b"\x00\x01"
            assert message.expiry_s in (99, 100)
            assert message.location is None
            assert message.fence is None
            await client.publish("plain/b", '{"x": 1}')
            assert (await first(client)).json() == {"x": 1}
            await client.unsubscribe("plain/#")

    run(main)


def test_places_travel_as_user_properties(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        async with Client("127.0.0.1", mosquitto.port, at=(52.5, 13.4)) as client:
            assert client.location == Location(52.5, 13.4)
            await client.subscribe("plain/#", within=(52.5, 13.4, 1_000), identifier=7)
            await client.publish("plain/a", b"x", to=Circle(Location(52.5, 13.4), 500), at="geo:52.6,13.5")
            message = await first(client)
            assert message.location == Location(52.6, 13.5)
            assert message.fence == Circle(Location(52.5, 13.4), 500)
            assert message.subscription_identifiers == (7,)
            assert client.location == Location(52.6, 13.5)
            await client.publish("plain/a", b"x", to="POLYGON((0 0,1 0,1 1,0 0))")
            assert (await first(client)).user == (("geo-fence", "POLYGON((0 0,1 0,1 1,0 0))"),)

    run(main)


def test_moving_publishes_the_location(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        async with Client("127.0.0.1", mosquitto.port) as client:
            await client.subscribe("$geo/location")
            await client.move(48.85, -2.35, qos=1)
            message = await first(client)
            assert (message.topic, message.payload) == ("$geo/location", b"48.85,-2.35")
            assert client.location == Location(48.85, -2.35)

    run(main)


def test_what_is_no_place_is_refused_before_it_is_sent(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        with pytest.raises(GeometryError):
            Client("127.0.0.1", at=(91, 0))
        async with Client("127.0.0.1", mosquitto.port) as client:
            with pytest.raises(GeometryError):
                await client.move(0, 181)
            with pytest.raises(GeometryError):
                await client.subscribe("plain/a", within="POLYGON((0 0))")
            with pytest.raises(GeometryError):
                await client.publish("plain/a", to=(1, 2))  # type: ignore[arg-type]
            with pytest.raises(GeometryError):
                await client.publish("plain/a", at=(1, 2, 3))  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="cannot publish"):
                await client.publish("plain/#")

    run(main)


def test_a_refused_publish_raises_with_its_reason(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        async with Client("127.0.0.1", mosquitto.port) as client:
            for qos in (1, 2):
                with pytest.raises(RefusedError) as caught:
                    await client.publish("secret/a", b"x", qos=qos)
                assert caught.value.code == 0x87
                assert str(caught.value) == "the broker refused to publish: Not authorized (0x87)"
            await client.publish("plain/a", b"x", qos=1)

    run(main)


def test_a_session_survives_if_asked_to(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        def make(clean: bool) -> Client:
            return Client("127.0.0.1", mosquitto.port, client_id="keeper", clean_start=clean, session_expiry_s=60)

        async with make(True) as client:
            assert not client.session_present
            assert client.client_id == "keeper"
            await client.subscribe("plain/kept", qos=1)
        async with Client("127.0.0.1", mosquitto.port) as other:
            await other.publish("plain/kept", b"waiting", qos=1)
        async with make(False) as client:
            assert client.session_present
            assert (await first(client)).payload == b"waiting"
        async with make(True):
            pass

    run(main)


async def break_and_read(client: Client) -> None:
    async with client:
        assert client._link.channel is not None
        assert client._link.channel._transport is not None
        client._link.channel._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        await first(client)


def test_a_will_is_published_when_the_connection_breaks(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        async with Client("127.0.0.1", mosquitto.port) as watcher:
            await watcher.subscribe("plain/will")
            will = Will(topic="plain/will", payload="gone", to=(1, 2, 3))
            broken = Client("127.0.0.1", mosquitto.port, will=will)
            with pytest.raises(ClientError, match="is lost"):
                await break_and_read(broken)
            message = await first(watcher)
            assert message.text == "gone"
            assert message.user_property("geo-fence") == "geo:1.0,2.0;u=3.0"

    run(main)


def test_tls_carries_events(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        context = ssl.create_default_context(cafile=str(mosquitto.cafile))
        async with Client("localhost", mosquitto.tls_port, tls=context) as client:
            await client.subscribe("plain/tls")
            await client.publish("plain/tls", b"x")
            assert (await first(client)).payload == b"x"

    run(main)


def test_tls_checks_the_certificate(mosquitto: Mosquitto) -> None:
    async def main() -> None:
        with pytest.raises(ClientError, match=r"^cannot connect to localhost:.*certificate verify failed"):
            async with Client("localhost", mosquitto.tls_port, tls=True):
                pass

    run(main)


def test_a_broker_that_is_not_there_is_one_clear_line() -> None:
    async def main() -> None:
        (port,) = free_ports(1)
        with pytest.raises(ClientError, match=rf"^cannot connect to 127.0.0.1:{port}: .*Connection refused$"):
            async with Client("127.0.0.1", port):
                pass

    run(main)


def test_default_ports_follow_the_transport() -> None:
    async def main() -> None:
        assert Client().address == "localhost:1883"
        assert Client(tls=True).address == "localhost:8883"
        assert Client(websocket=True).address == "localhost:9001"
        assert Client(tls=True, websocket=True).address == "localhost:9002"

    run(main)


@pytest.mark.anyio
@pytest.mark.parametrize("who", [{"client_id": "\udcff"}, {"username": "\udcff"}])
async def test_a_name_that_is_no_text_is_one_line(who: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"^cannot connect: text with surrogates cannot be sent"):
        Client("127.0.0.1", 1, client_id=who.get("client_id"), username=who.get("username"))
