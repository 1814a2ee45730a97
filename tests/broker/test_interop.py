"""Other people's clients against a whole broker: Mosquitto's tools, paho, aiomqtt and mqtt.js, over every transport."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker

pytestmark = pytest.mark.anyio

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="mosquitto_pub and mosquitto_sub are not installed"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server certificate for localhost and a client certificate for `device-1`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test CA")
    (folder / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, subject in (("server", "/CN=localhost"), ("client", "/CN=device-1")):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder


@pytest.fixture
async def ports(certificates: Path) -> AsyncIterator[dict[str, int]]:
    server: dict[str, Any] = {"certfile": str(certificates / "server.pem"), "keyfile": str(certificates / "server.key")}
    client: dict[str, Any] = {"cafile": str(certificates / "ca.pem"), "require_certificate": True}
    here: dict[str, Any] = {"host": "127.0.0.1", "port": 0}
    listeners = (
        Listener(kind="tcp", **here),
        Listener(kind="websocket", **here),
        Listener(kind="tls", **here, **server),
        Listener(kind="websocket_tls", **here, **server),
        Listener(kind="tls", **here, **server, **client, certificate_user="common_name"),
    )
    config = Config(listeners=listeners, persistence=Persistence(enabled=False), metrics=Metrics(sys_interval_s=1))
    async with Broker(config) as broker:
        names = ("tcp", "websocket", "tls", "websocket_tls", "mtls")
        found = {name: address[2] for name, address in zip(names, broker.addresses, strict=True)}
        BROKERS.append(broker)
        yield found
        BROKERS.clear()


BROKERS: list[Broker] = []


async def _run(*command: object, patience_s: float = 15.0) -> str:
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(patience_s):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def _subscribed(topic: str) -> None:
    async with asyncio.timeout(60):
        while not any(topic in c.session.subscriptions for c in BROKERS[0].core.clients.values()):
            await asyncio.sleep(0.01)


@needs_mosquitto
@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_mosquitto_tools_publish_and_subscribe(ports: dict[str, int], version: str, qos: int) -> None:
    both = ("-p", ports["tcp"], "-V", version, "-q", qos)
    listening = asyncio.create_task(_run("mosquitto_sub", *both, "-t", "a/#", "-C", 3, "-F", "%t %q %p"))
    await _subscribed("a/#")
    for number in range(3):
        await _run("mosquitto_pub", *both, "-t", "a/b", "-m", f"hello {number}")
    assert (await listening).splitlines() == [f"a/b {qos} hello {number}" for number in range(3)]


@needs_mosquitto
async def test_mosquitto_tools_work_over_tls_and_see_the_broker_s_topics(
    ports: dict[str, int], certificates: Path
) -> None:
    ca = ("--cafile", certificates / "ca.pem", "-h", "localhost")
    out = await _run("mosquitto_sub", "-p", ports["tls"], *ca, "-t", "$SYS/broker/version", "-C", 1, "-F", "%r %p")
    assert out.startswith("1 geomq version")
    mine = ("--cert", certificates / "client.pem", "--key", certificates / "client.key")
    await _run("mosquitto_pub", "-p", ports["mtls"], *ca, *mine, "-i", "device", "-t", "x", "-m", "y", "-q", 1)
    refused = await asyncio.create_subprocess_exec(
        *map(str, ("mosquitto_pub", "-p", ports["mtls"], *ca, "-t", "x", "-m", "y", "-q", 1)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await refused.wait() != 0


async def test_the_name_in_a_certificate_is_the_user(ports: dict[str, int], certificates: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    async with aiomqtt.Client("127.0.0.1", ports["mtls"], identifier="c", tls_context=context):
        assert BROKERS[0].core.clients["c"].user == "device-1"


class PahoClient:
    """paho in its own thread, with what it received."""

    def __init__(self, port: int, version: MQTTProtocolVersion, transport: str, ca: Path | None) -> None:
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            protocol=version,
            transport=transport,  # type: ignore[arg-type]
        )
        if ca is not None:
            self.client.tls_set(str(ca))
        self.got: list[tuple[str, bytes, int]] = []
        self.ready, self.enough = threading.Event(), threading.Event()
        self.wanted = 0
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda *_: self.ready.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self.got.append((message.topic, bytes(message.payload), message.qos))
        if len(self.got) >= self.wanted:
            self.enough.set()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize("kind", ["tcp", "websocket", "tls", "websocket_tls"])
@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
async def test_paho_works_over_every_transport(
    ports: dict[str, int], certificates: Path, kind: str, version: MQTTProtocolVersion
) -> None:
    def talk() -> list[tuple[str, bytes, int]]:
        ca = certificates / "ca.pem" if "tls" in kind else None
        transport = "websockets" if "websocket" in kind else "tcp"
        one = PahoClient(ports[kind], version, transport, ca)
        one.wanted = 7
        try:
            one.client.subscribe("p/#", 2)
            assert one.ready.wait(10)
            for qos in (0, 1, 2):
                for number in range(2):
                    one.client.publish("p/x", b"%d" % number, qos).wait_for_publish(10)
            one.client.publish("p/big", bytes(300_000), 1).wait_for_publish(10)
            assert one.enough.wait(10)
        finally:
            one.close()
        return one.got

    got = await asyncio.to_thread(talk)
    assert sorted(qos for _, _, qos in got) == [0, 0, 1, 1, 1, 2, 2]
    assert max(len(payload) for _, payload, _ in got) == 300_000


async def test_aiomqtt_uses_fences_and_version_5_features(ports: dict[str, int]) -> None:
    fence = PahoProperties(8)  # type: ignore[no-untyped-call]
    fence.UserProperty = [("geo-fence", "geo:52.52,13.405;u=1000")]
    place = PahoProperties(3)  # type: ignore[no-untyped-call]
    place.UserProperty = [("geo-location", "52.52,13.405")]
    place.ResponseTopic, place.CorrelationData = "answers", b"42"
    five = aiomqtt.ProtocolVersion.V5
    async with (
        aiomqtt.Client("127.0.0.1", ports["tcp"], identifier="s", protocol=five) as s,
        aiomqtt.Client("127.0.0.1", ports["tcp"], identifier="p", protocol=five) as p,
    ):
        await s.subscribe("t", options=SubscribeOptions(qos=1), properties=fence)
        await p.publish("t", "nowhere", qos=1)
        await p.publish("t", "inside", qos=1, properties=place)
        async with asyncio.timeout(60):
            message = await anext(aiter(s.messages))
        assert message.payload == b"inside"
        properties: Any = message.properties
        assert (properties.ResponseTopic, properties.CorrelationData) == ("answers", b"42")


MQTT_JS = """
const mqtt = require(process.argv[1]);
const [url, version, qos] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const client = mqtt.connect(url, {protocolVersion: version, reconnectPeriod: 0});
const got = [];
client.on('message', (topic, payload) => {
  got.push([topic, payload.toString()]);
  if (got.length === 3) { console.log(JSON.stringify(got)); client.end(); }
});
client.on('error', (error) => { console.error(String(error)); process.exit(1); });
client.on('connect', () => client.subscribe('js/#', {qos}, () => {
  for (let i = 0; i < 3; i++) client.publish('js/x', String(i), {qos});
}));
"""


@pytest.fixture(scope="session")
def mqtt_js() -> str:
    """Where mqtt.js is installed: `make test` puts it beside the virtual environment, GEOMQ_MQTT_JS names another."""
    folder = os.environ.get("GEOMQ_MQTT_JS", str(Path(sys.prefix) / "js" / "node_modules" / "mqtt"))
    if shutil.which("node") is None or not Path(folder, "package.json").exists():
        pytest.skip("mqtt.js or node is not there: make test installs mqtt.js where npm is")
    return folder


@pytest.mark.parametrize("kind", ["tcp", "websocket"])
@pytest.mark.parametrize("version", [4, 5])
async def test_mqtt_js_works_over_tcp_and_websocket(
    ports: dict[str, int], mqtt_js: str, kind: str, version: int
) -> None:
    scheme = "mqtt" if kind == "tcp" else "ws"
    url = f"{scheme}://127.0.0.1:{ports[kind]}/mqtt"
    for qos in (0, 2):
        out = await _run("node", "-e", MQTT_JS, mqtt_js, url, version, qos)
        assert json.loads(out) == [["js/x", str(number)] for number in range(3)]
