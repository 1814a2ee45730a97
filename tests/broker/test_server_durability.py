"""What a broker promised survives its restart, and its sudden death."""

import asyncio
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.broker.federated import free_ports, until
from tests.broker.probes import OPEN, Probe, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.connections.connection import Connection
from geomq.broker.server import Broker
from geomq.mqtt.codec.aliases import InboundAliases
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    SubscribeRequest,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import NEVER_EXPIRES, V5, V311

pytestmark = pytest.mark.anyio

KEEPS = Properties(session_expiry_interval=NEVER_EXPIRES)
BERLIN = b"52.52,13.405"


@asynccontextmanager
async def _running(folder: Path, limits: Limits | None = None) -> AsyncIterator[Broker]:
    config = Config(
        broker=BrokerSettings(data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=0),
        limits=limits or Limits(),
    )
    async with Broker(config) as broker:
        yield broker
        await drop_all()


async def test_sessions_queues_and_receipts_survive_a_restart(tmp_path: Path) -> None:
    async with _running(tmp_path) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        await s.subscribe(SubscribeRequest("t/#", 2), SubscribeRequest("r", 0))
        p, _ = await Probe.connect(broker.port, Connect("p", clean_start=False, properties=KEEPS))
        p.publish("t/1", b"one", 1)
        await p.expect(Puback)
        in_flight = await s.expect(Publish)
        await s.drop()
        half = p.publish("t/2", b"two", 2)
        await p.expect(Pubrec)
    async with _running(tmp_path) as broker:
        p, connack = await Probe.connect(broker.port, Connect("p", clean_start=False, properties=KEEPS))
        assert connack.session_present
        p.send(Publish("t/2", b"two", 2, dup=True, packet_id=half))
        assert await p.expect(Pubrec) == Pubrec(half)
        p.send(Pubrel(half))
        assert await p.expect(Pubcomp) == Pubcomp(half)
        s, connack = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        assert connack.session_present
        again = await s.expect(Publish)
        assert (again.payload, again.packet_id, again.dup) == (b"one", in_flight.packet_id, True)
        assert (await s.expect(Publish)).payload == b"two"
        assert await s.silent()
        p.publish("r", b"live")
        assert (await s.expect(Publish)).payload == b"live"


async def test_retained_events_fences_and_places_survive_a_restart(tmp_path: Path) -> None:
    fenced = Properties(user_properties=(("geo-fence", "geo:52.52,13.405;u=1000"),))
    async with _running(tmp_path) as broker:
        p, _ = await Probe.connect(broker.port, Connect("p"))
        p.publish("a", b"plain", 1, retain=True)
        p.publish("b", b"fenced", 1, retain=True, properties=fenced)
        p.publish("c", b"gone", 1, retain=True)
        p.publish("c", b"", 1, retain=True)
        for _ in range(4):
            await p.expect(Puback)
        s, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        s.publish("$geo/fence/f", b"geo:52.52,13.405;u=1000")
        s.publish("$geo/location", BERLIN)
        await s.subscribe(SubscribeRequest("$geo/from/f/near", 1), SubscribeRequest("$share/g/job", 1))
    async with _running(tmp_path) as broker:
        n, _ = await Probe.connect(broker.port, Connect("n"))
        await n.subscribe("+")
        assert (await n.expect(Publish)).payload == b"plain"
        assert await n.silent()
        n.publish("$geo/location", BERLIN)
        assert (await n.expect(Publish)).payload == b"fenced"
        n.publish("near", b"x", 1)
        n.publish("job", b"y", 1)
        s, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        assert {(await s.expect(Publish)).payload for _ in range(2)} == {b"x", b"y"}
        assert broker.core.clients["s"].location == (52.52, 13.405)


async def test_a_fence_as_long_as_may_be_is_read_again_at_the_next_start(tmp_path: Path) -> None:
    """Written down it may be longer than its client wrote it: `1` becomes `1.0`."""
    fence = "geo:52.5,13;u=9e4"
    limits = Limits(fence_text_bytes_max=len(fence))
    async with _running(tmp_path, limits) as broker:
        p, _ = await Probe.connect(broker.port, Connect("p", clean_start=False, properties=KEEPS))
        p.publish("$geo/fence/home", fence.encode(), 1)
        await p.expect(Puback)
        await p.subscribe(SubscribeRequest("$geo/from/home/t", 1))
        p.publish("$geo/location", BERLIN, 1)
        await p.expect(Puback)
        p.send(
            Publish("r", b"kept", 1, True, packet_id=9, properties=Properties(user_properties=(("geo-fence", fence),)))
        )
        await p.expect(Puback)
    async with _running(tmp_path, limits) as broker:
        p, _ = await Probe.connect(broker.port, Connect("p", clean_start=False, properties=KEEPS))
        p.publish("t", b"inside")
        assert (await p.expect(Publish)).payload == b"inside"
        await p.subscribe("r")
        assert (await p.expect(Publish)).payload == b"kept"


async def test_a_will_waiting_at_a_restart_is_still_published(tmp_path: Path) -> None:
    will = Will("w", b"gone", 1, properties=Properties(will_delay_interval=1))
    async with _running(tmp_path) as broker:
        await Probe.connect(broker.port, Connect("c", will=will, properties=KEEPS))
        s, _ = await Probe.connect(broker.port, Connect("s", properties=KEEPS))
        await s.subscribe(SubscribeRequest("w", 1))
    async with _running(tmp_path) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        assert (await s.expect(Publish)).payload == b"gone"


async def test_a_session_that_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    async with _running(tmp_path) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s", properties=KEEPS))
        await s.subscribe(SubscribeRequest("t", 1))
        p, _ = await Probe.connect(broker.port, Connect("p"))
        p.publish("t", b"x", 1)
        await p.expect(Puback)
        await s.drop()
        s, _ = await Probe.connect(broker.port, Connect("s"))
        await s.disconnect()
    async with _running(tmp_path) as broker:
        assert not broker.core.clients
        assert broker.core.store.messages == 0


async def test_a_session_that_becomes_one_of_a_connection_takes_its_journal_along(tmp_path: Path) -> None:
    narrow = Properties(session_expiry_interval=NEVER_EXPIRES, receive_maximum=1)
    async with _running(tmp_path) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s", properties=narrow))
        await s.subscribe(SubscribeRequest("t", 1))
        p, _ = await Probe.connect(broker.port, Connect("p"))
        for payload in (b"1", b"2"):
            p.publish("t", payload, 1)
            await p.expect(Puback)
        first = await s.expect(Publish)
        again = await Probe.open(broker.port)
        while len(broker.parts.handlers.connections) < 3:
            await asyncio.sleep(0.01)
        before, after = broker.core.clients["s"].connection, list(broker.parts.handlers.connections)[-1]
        assert isinstance(before, Connection)
        # Both in one tick: the last answer on the old connection, and the new one.
        broker.core.outbox.schedule()
        before.data_received(encode(Puback(first.packet_id), V5))
        after.data_received(encode(Connect("s", clean_start=False), V5))
        assert (await again.expect(Connack)).session_present
        assert (await again.expect(Publish)).payload == b"2"
        p.publish("t", b"3", 1)
        await p.expect(Puback)
        again.send(Puback(2))
        assert (await again.expect(Publish)).payload == b"3"
    async with _running(tmp_path) as broker:
        assert not broker.core.clients
        assert broker.core.store.messages == 0


async def test_an_alias_is_explained_before_it_is_used_although_qos_1_waits_for_the_disk(tmp_path: Path) -> None:
    async with _running(tmp_path) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s", properties=Properties(topic_alias_maximum=5)))
        await s.subscribe(SubscribeRequest("a/long/topic", 1))
        p, _ = await Probe.connect(broker.port, Connect("p"))
        p.send_bytes(
            b"".join(encode(Publish("a/long/topic", b"%d" % qos, qos, packet_id=qos), V5) for qos in (1, 0, 0))
        )
        aliases = InboundAliases(5)
        for _ in range(3):
            assert aliases.resolve(await s.expect(Publish)) == "a/long/topic"


SERVER = textwrap.dedent(
    """
    import sys
    from geomq.broker.config.recording import Log
    from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
    from geomq.broker.server import run
    folder, port = sys.argv[1], int(sys.argv[2])
    sys.exit(run(Config(
        broker=BrokerSettings(data_dir=folder),
        listeners=(Listener(host="127.0.0.1", port=port),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=0),
        log=Log(level="error"),
        limits=Limits(queue_messages_max=1_000_000),
    )))
    """
)


class Process:
    """A broker in a process of its own that can be killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self._command = (sys.executable, "-c", SERVER, str(folder), str(port))
        self.port = port

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(*self._command)
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    async def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return await self.process.wait()


class Sender:
    """Publishes numbers and remembers which were acknowledged; repeats the others after a reconnect."""

    def __init__(self, qos: int) -> None:
        self.qos = qos
        self.number = 0
        self.next_id = 0
        self.open: dict[int, bytes] = {}
        self.releasing: dict[int, bytes] = {}
        self.acknowledged: list[bytes] = []

    async def run(self, port: int) -> None:
        connect = Connect("sender", V311, clean_start=False)
        probe, _ = await Probe.connect(port, connect)
        for packet_id, payload in self.open.items():
            probe.send(Publish("t", payload, self.qos, dup=True, packet_id=packet_id))
        for packet_id in self.releasing:
            probe.send(Pubrel(packet_id))
        while True:
            while len(self.open) + len(self.releasing) < 30:
                self.number += 1
                self.next_id = self.next_id % 65_535 + 1
                payload = b"%d" % self.number
                self.open[self.next_id] = payload
                probe.send(Publish("t", payload, self.qos, packet_id=self.next_id))
            self._handle(probe, await probe.receive())

    def _handle(self, probe: Probe, packet: Packet) -> None:
        if isinstance(packet, Puback):
            self.acknowledged.append(self.open.pop(packet.packet_id))
        elif isinstance(packet, Pubrec):
            payload = self.open.pop(packet.packet_id, None)
            if payload is not None:
                self.releasing[packet.packet_id] = payload
                self.acknowledged.append(payload)
            probe.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self.releasing.pop(packet.packet_id, None)


class Receiver:
    """Receives and acknowledges, remembering half-received QoS 2 messages."""

    def __init__(self, qos: int) -> None:
        self.qos = qos
        self.got: list[bytes] = []
        self.half: set[int] = set()

    async def run(self, port: int) -> None:
        connect = Connect("receiver", V311, clean_start=False)
        probe, connack = await Probe.connect(port, connect)
        if not connack.session_present:
            await probe.subscribe(SubscribeRequest("t", self.qos))
        while True:
            packet = await probe.receive()
            if isinstance(packet, Publish):
                if packet.qos == 1:
                    self.got.append(packet.payload)
                    probe.send(Puback(packet.packet_id))
                else:
                    if packet.packet_id not in self.half:
                        self.half.add(packet.packet_id)
                        self.got.append(packet.payload)
                    probe.send(Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                self.half.discard(packet.packet_id)
                probe.send(Pubcomp(packet.packet_id))


KILLS = 3


@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path, qos: int) -> None:
    process = Process(tmp_path, free_ports(1)[0])
    sender, receiver = Sender(qos), Receiver(qos)
    await process.start()
    probe, _ = await Probe.connect(process.port, Connect("receiver", V311, clean_start=False))
    await probe.subscribe(SubscribeRequest("t", qos))
    await probe.drop()
    for _ in range(KILLS):
        await _until_dead(process, sender, receiver)
        await process.start()
    receiving = asyncio.create_task(receiver.run(process.port))
    with suppress(AssertionError):
        await until(lambda: set(sender.acknowledged) <= set(receiver.got) or receiving.done())
    await asyncio.sleep(0.5)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    assert await process.stop(signal.SIGTERM) == 0
    await drop_all()
    lost = set(sender.acknowledged) - set(receiver.got)
    assert not lost
    if qos == 2:
        assert len(receiver.got) == len(set(receiver.got))


async def _until_dead(process: Process, sender: Sender, receiver: Receiver) -> None:
    """Traffic for a while, then `kill -9` in the middle of it."""
    tasks = [asyncio.create_task(each.run(process.port)) for each in (sender, receiver)]
    wanted = len(sender.acknowledged) + 30
    await until(lambda: len(sender.acknowledged) >= wanted or any(task.done() for task in tasks))
    await process.stop(signal.SIGKILL)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, Closed | ConnectionError), result


async def test_where_a_client_went_is_known_after_the_broker_was_killed(tmp_path: Path) -> None:
    process = Process(tmp_path, free_ports(1)[0])
    await process.start()
    walker, _ = await Probe.connect(process.port, Connect("walker", clean_start=False, properties=KEEPS))
    await walker.subscribe(SubscribeRequest("news", 1))
    walker.publish("$geo/location", BERLIN, 1)
    await walker.expect(Puback)
    await asyncio.sleep(2.5)
    walker.publish("$geo/other", b"", 1)  # an acknowledgement waits for all that was written before
    await walker.expect(Puback)
    await process.stop(signal.SIGKILL)
    await process.start()
    sender, _ = await Probe.connect(process.port, Connect("sender"))
    near = Properties(user_properties=(("geo-fence", "geo:52.52,13.405;u=1000"),))
    sender.publish("news", b"for those in Berlin", 1, properties=near)
    await sender.expect(Puback)
    walker, _ = await Probe.connect(process.port, Connect("walker", clean_start=False, properties=KEEPS))
    assert (await walker.expect(Publish)).payload == b"for those in Berlin"
    assert await process.stop(signal.SIGTERM) == 0
    await drop_all()


async def test_a_signal_stops_the_process_in_order(tmp_path: Path) -> None:
    process = Process(tmp_path, free_ports(1)[0])
    await process.start()
    probe, _ = await Probe.connect(process.port, Connect("c", V311))
    assert await process.stop(signal.SIGTERM) == 0
    with pytest.raises(Closed):
        await probe.receive()
    await probe.drop()
    OPEN.clear()
