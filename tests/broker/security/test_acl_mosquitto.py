"""Random access control files decide as a real Mosquitto decides: every user, every topic, both directions."""

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from geomq.broker.local_federation import free_ports
from geomq.broker.security.acl import load_acl

USERS = [f"u{number}" for number in range(10)]
TOPICS = ["/".join(levels) for size in (1, 2, 3) for levels in product("ab", repeat=size)] + ["u1/a", "a/c2"]
FILTERS = [*TOPICS, "#", "a/#", "b/#", "+", "+/a", "a/+", "a/+/b", "+/+/+", "a/b/#", "+/#"]
PATTERNS = ["%u/a", "a/%c", "%u/#", "b/%u", "a/#", "+/b"]


def random_file(seed: int) -> str:
    choose = random.Random(seed)
    words = ["", "read ", "write ", "readwrite ", "deny "]
    lines = ["user root", "topic #"]
    for user in USERS:
        lines.append(f"user {user}")
        lines += [f"topic {choose.choice(words)}{choose.choice(FILTERS)}" for _ in range(choose.randrange(6))]
    lines += [f"pattern {choose.choice(words)}{choose.choice(PATTERNS)}" for _ in range(3)]
    return "\n".join(lines) + "\n"


@pytest.fixture(params=[1, 2, 3])
def port(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed: nothing to compare with")
    (free,) = free_ports(1)
    (tmp_path / "acl").write_text(random_file(request.param))
    (tmp_path / "conf").write_text(
        f"listener {free} 127.0.0.1\nallow_anonymous true\nacl_file {tmp_path}/acl\nuser root\n"
    )
    process = subprocess.Popen([binary, "-c", tmp_path / "conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", free)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield free
    finally:
        process.terminate()
        process.wait(10)


class Probe:
    """One user's connection: what it managed to publish and what it was given to read."""

    def __init__(self, user: str, port: int) -> None:
        self.written: set[str] = set()
        self.read: set[str] = set()
        self.answered = 0
        self.ready = False
        self.client = Client(CallbackAPIVersion.VERSION2, f"c{user[1:]}", protocol=MQTTProtocolVersion.MQTTv5)
        self.client.username_pw_set(user)
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.topics: dict[int, str] = {}
        self.client.connect("127.0.0.1", port)

    def _on_connect(
        self, client: Client, _: object, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        client.subscribe("#")

    def _on_subscribe(
        self, client: Client, _: object, mid: int, codes: list[ReasonCode], properties: Properties | None
    ) -> None:
        self.ready = True

    def _on_message(self, client: Client, _: object, message: MQTTMessage) -> None:
        self.read.add(message.topic)

    def _on_publish(self, client: Client, _: object, mid: int, code: ReasonCode, properties: Properties | None) -> None:
        self.answered += 1
        if not code.is_failure:
            self.written.add(self.topics[mid])

    def publish_all(self) -> None:
        for topic in TOPICS:
            self.topics[self.client.publish(topic, qos=1).mid] = topic


def run(probes: list[Probe], seconds: float, done: str) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for probe in probes:
            probe.client.loop(0.002)
        if done == "ready" and all(probe.ready for probe in probes):
            return
        if done == "answered" and all(probe.answered == len(TOPICS) for probe in probes):
            return


def test_random_files_decide_as_mosquitto_decides(port: int, tmp_path: Path) -> None:
    acl = load_acl(tmp_path / "acl")
    readers = [Probe(user, port) for user in USERS]
    root = Probe("root", port)
    run([*readers, root], 5, "ready")
    root.publish_all()
    run([root], 5, "answered")
    rights = {user: acl.rights(user=user, client_id=f"c{user[1:]}") for user in USERS}
    readable = {user: {topic for topic in TOPICS if mine.may_read(topic)} for user, mine in rights.items()}
    for _ in range(20):
        run(readers, 0.3, "all read")
        if all(readable[user] <= probe.read for user, probe in zip(USERS, readers, strict=True)):
            break
    for user, probe in zip(USERS, readers, strict=True):
        assert probe.read == readable[user], f"{user} reads"
        probe.publish_all()
    run(readers, 5, "answered")
    for user, probe in zip(USERS, readers, strict=True):
        mine = acl.rights(user=user, client_id=f"c{user[1:]}")
        assert probe.written == {topic for topic in TOPICS if mine.may_write(topic)}, f"{user} writes"
        probe.client.disconnect()
    root.client.disconnect()
