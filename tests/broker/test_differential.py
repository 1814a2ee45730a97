"""The same random scripts against a real Mosquitto and against us: every client receives the same.

Scripts stay where the specification leaves no choice; a failure names the seed that repeats it.
"""

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.probe import Probe

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import (
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.topics import topic_matches
from geomq.mqtt.codec.types import V5, V311

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("mosquitto") is None, reason="mosquitto is not installed"),
]

SCRIPTS = int(os.environ.get("GEOMQ_TEST_SCRIPTS", "8"))
FILTERS = ["a", "a/b", "a/+", "a/#", "+/b", "#", "b/+/c", "$x/#", "+/+", "/a", "a//b"]
TOPICS = ["a", "a/b", "a/c", "b", "b/x/c", "$x/y", "a/b/c", "/a", "a//b"]

Received = tuple[str, bytes, int, bool, tuple[int, ...]]


class Actor:
    """A client that acknowledges everything and remembers what it got."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.probe: Probe | None = None
        self.got: list[Received] = []
        self.half: set[int] = set()
        self.filters: set[str] = set()

    async def connect(self, port: int, clean: bool, expiry: int, will: Will | None) -> bool:
        properties = Properties(session_expiry_interval=expiry) if self.version == V5 else Properties()
        connect = Connect(self.name, self.version, clean, 0, will, properties=properties)
        self.probe, connack = await Probe.connect(port, connect)
        return connack.session_present

    async def until(self, kind: type[Packet]) -> Packet:
        assert self.probe is not None
        while True:
            packet = await self.probe.receive()
            if isinstance(packet, Publish):
                self._take(self.probe, packet)
            elif isinstance(packet, Pubrel):
                self.half.discard(packet.packet_id)
                self.probe.send(Pubcomp(packet.packet_id))
            elif isinstance(packet, kind):
                return packet

    def _take(self, probe: Probe, packet: Publish) -> None:
        if packet.qos == 2 and packet.packet_id in self.half:
            probe.send(Pubrec(packet.packet_id))
            return
        identifiers = tuple(sorted(packet.properties.subscription_identifiers))
        self.got.append((packet.topic, packet.payload, packet.qos, packet.retain, identifiers))
        if packet.qos == 1:
            probe.send(Puback(packet.packet_id))
        elif packet.qos == 2:
            self.half.add(packet.packet_id)
            probe.send(Pubrec(packet.packet_id))

    async def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        assert self.probe is not None
        packet_id = self.probe.publish(topic, payload, qos, retain=retain)
        if qos == 1:
            await self.until(Puback)
        elif qos == 2:
            await self.until(Pubrec)
            self.probe.send(Pubrel(packet_id))
            await self.until(Pubcomp)

    async def settle(self) -> None:
        assert self.probe is not None
        for _ in range(3):
            self.probe.send(Pingreq())
            await self.until(Pingresp)


def _once(actor: Actor) -> list[Received]:
    """What the actor got, one entry per message.

    Mosquitto may send a copy per overlapping subscription, we send one for all. To 3.1.1 clients it sends the QoS of
    any of them where the specification wants the highest, and copies with QoS 0 do not wait for an absent client;
    so QoS and identifiers of overlapping subscriptions are not compared.
    """
    merged: dict[tuple[str, bytes], Received] = {}
    for topic, payload, qos, retain, identifiers in actor.got:
        overlapping = sum(topic_matches(each, topic) for each in actor.filters) > 1
        if overlapping:
            qos, identifiers = (qos if actor.version == V5 else -1), ()
        _, _, best, flagged, known = merged.get((topic, payload), (topic, payload, -1, False, ()))
        both = tuple(sorted({*known, *identifiers}))
        merged[topic, payload] = (topic, payload, max(best, qos), flagged or retain, both)
    return sorted(merged.values())


class Stage:
    """One broker with its actors; plays a script and writes down what everybody received in each step."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.actors = [Actor("old", V311), Actor("new", V5), Actor("new2", V5)]

    async def play(self, seed: int, steps: int) -> list[str]:
        rng = random.Random(seed)
        lines = []
        for step in range(steps):
            said = await self._step(rng, step)
            for _ in range(2):
                for actor in self.actors:
                    if actor.probe is not None:
                        await actor.settle()
            for actor in self.actors:
                said += f"\n  {actor.name}: {_once(actor)}"
                actor.got.clear()
            lines.append(said)
        for actor in self.actors:
            if actor.probe is not None:
                await actor.probe.drop()
        return lines

    async def _step(self, rng: random.Random, step: int) -> str:
        """Draw one action; the draws must not depend on what the broker answered."""
        actor = rng.choice(self.actors)
        kind = rng.choices(["connect", "leave", "subscribe", "unsubscribe", "publish"], [2, 1, 4, 1, 10])[0]
        clean, expiry = rng.random() < 0.3, rng.choice([0, 1000])
        topic, qos, retain = rng.choice(TOPICS), rng.randrange(3), rng.random() < 0.25
        payload = b"" if retain and rng.random() < 0.3 else b"%d" % step
        topic_filter = rng.choice(FILTERS)
        # Mosquitto 2.0 keeps the first options when a subscription is renewed, so they never change here.
        fixed = random.Random(f"{actor.name} {topic_filter}")
        options = (fixed.random() < 0.3, fixed.random() < 0.3, rng.randrange(3))
        identifier = fixed.choice([0, 0, 5, 9])
        will = Will(topic, b"will %d" % step, qos, retain) if rng.random() < 0.3 else None
        gracefully = rng.random() < 0.5
        probe = actor.probe
        if probe is None or kind == "connect":
            if probe is not None:
                return "already there"
            present = await actor.connect(self.port, clean, expiry, will)
            return f"{actor.name} connects clean={clean} expiry={expiry} -> {present}"
        if kind == "leave":
            await (probe.disconnect() if gracefully else probe.drop())
            actor.probe = None
            await asyncio.sleep(0.03)
            return f"{actor.name} leaves gracefully={gracefully}"
        if kind == "subscribe":
            return await self._subscribe(actor, probe, topic_filter, qos, options, identifier)
        if kind == "unsubscribe":
            probe.send(Unsubscribe(probe.next_id(), (topic_filter,)))
            answer = await actor.until(Unsuback)
            assert isinstance(answer, Unsuback)
            # Mosquitto 2.0 reports success for an unknown filter under $.
            reasons = () if topic_filter.startswith("$") else answer.reasons
            return f"{actor.name} unsubscribes {topic_filter} -> {reasons}"
        await actor.publish(topic, payload, qos, retain)
        return f"{actor.name} publishes {topic} {payload!r} qos={qos} retain={retain}"

    @staticmethod
    async def _subscribe(
        actor: Actor,
        probe: Probe,
        topic_filter: str,
        qos: int,
        options: tuple[bool, bool, int],
        identifier: int,
    ) -> str:
        properties = Properties()
        request = SubscribeRequest(topic_filter, qos)
        if actor.version == V5:
            request = SubscribeRequest(topic_filter, qos, *options)
            properties = Properties(subscription_identifiers=(identifier,) if identifier else ())
        actor.filters.add(topic_filter)
        probe.send(Subscribe(probe.next_id(), (request,), properties))
        answer = await actor.until(Suback)
        assert isinstance(answer, Suback)
        return f"{actor.name} subscribes {request} {identifier} -> {answer.reasons}"


@asynccontextmanager
async def _mosquitto(folder: Path) -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nlog_type error\nsys_interval 0\n")
    process = await asyncio.create_subprocess_exec("mosquitto", "-c", str(config))
    try:
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.02)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def test_random_scripts_give_what_mosquitto_gives(tmp_path: Path) -> None:
    for seed in range(SCRIPTS):
        config = Config(
            listeners=(Listener(host="127.0.0.1", port=0),),
            persistence=Persistence(enabled=False),
            metrics=Metrics(sys_interval_s=0),
            limits=Limits(topic_alias_maximum=0),
        )
        async with _mosquitto(tmp_path) as port, Broker(config) as broker:
            theirs = await Stage(port).play(seed, 60)
            ours = await Stage(broker.port).play(seed, 60)
        for step, (expected, found) in enumerate(zip(theirs, ours, strict=True)):
            history = "\n".join(line.split("\n")[0] for line in theirs[:step])
            assert found == expected, (
                f"seed {seed}, step {step}\n{history}\n--- mosquitto\n{expected}\n--- geomq\n{found}"
            )
