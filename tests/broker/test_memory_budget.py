"""A broker with little memory stays within it however clients fill it, says what it refuses and serves those it has.

Each way of filling would take several times the budget. The broker is a process of its own, and what it occupies is
what the system says.
"""

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.certificates import Authority
from tests.broker.federated import until
from tests.broker.probes import Probe, drop_all

from geomq.broker.local_federation import free_ports
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")]

COMMAND = (sys.executable, "-c", "from geomq.cli import main; main()")
BUDGET = 300_000_000
KEPT = Properties(session_expiry_interval=100_000)


class Ground:
    """A broker with a budget, what it logs, and the most it ever occupied."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process, port: int, tls_port: int) -> None:
        self.log = folder / "log"
        self.process = process
        self.port, self.tls_port = port, tls_port
        self.peak = 0

    async def watch(self) -> None:
        while self.process.returncode is None:
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
                self.peak = max(self.peak, pages * 4_096)
            await asyncio.sleep(0.02)

    def sheds(self, *levels: str) -> bool:
        """Whether the broker said that it sheds one of these."""
        text = self.log.read_text()
        return any(f"sheds={level}" in text for level in levels)

    async def client(self, name: str, **more: object) -> Probe:
        probe, connack = await Probe.connect(self.port, Connect(name, V5, **more))  # type: ignore[arg-type]
        assert connack.reason == ReasonCode.SUCCESS, connack
        return probe

    async def is_refused(self, name: str) -> bool:
        probe, connack = await Probe.connect(self.port, Connect(name, V5))
        await probe.drop()
        return connack.reason == ReasonCode.SERVER_BUSY


@asynccontextmanager
async def little_memory(folder: Path) -> AsyncIterator[Ground]:
    port, tls_port = free_ports(2)
    certificate, key = Authority(folder).issue("localhost")
    config = folder / "geomq.toml"
    config.write_text(
        f'''log.file = "log"
[limits]
memory_bytes_max = {BUDGET}
pre_auth_bytes_max = 65536
connect_timeout_s = 60
pending_per_address_max = 0
[[listeners]]
host = "127.0.0.1"
port = {port}
[[listeners]]
kind = "tls"
host = "127.0.0.1"
port = {tls_port}
certfile = "{certificate}"
keyfile = "{key}"
'''
    )
    process = await asyncio.create_subprocess_exec(*COMMAND, "broker", "-c", str(config))
    ground = Ground(folder, process, port, tls_port)
    watching = asyncio.create_task(ground.watch())
    try:
        await until(lambda: ground.log.exists() and ground.log.read_text().count("listening") == 2)
        yield ground
        assert process.returncode is None
        await drop_all()
    finally:
        watching.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def queues(ground: Ground) -> None:
    """Sessions whose clients are away get 60 kB each time; all is acknowledged, nothing is lost in silence."""
    for number in range(20):
        kept = await ground.client(f"kept{number}", clean_start=False, properties=KEPT)
        await kept.subscribe(SubscribeRequest(f"q/{number}", 1))
        kept.send(Disconnect())
    publisher = await ground.client("publisher")
    for _ in range(400):
        for number in range(20):
            publisher.publish(f"q/{number}", bytes(60_000), 1)
        for _ in range(20):
            assert (await publisher.expect(Puback)).reason < ReasonCode.UNSPECIFIED_ERROR
    assert ground.sheds("growth")
    await until(lambda: "reason=queue_full" in ground.log.read_text())
    back, connack = await Probe.connect(ground.port, Connect("kept0", V5, clean_start=False, properties=KEPT))
    assert connack.session_present
    assert int(connack.properties.user("geo-dropped") or "0") > 0
    await back.expect(Publish)


async def retained(ground: Ground) -> None:
    publisher = await ground.client("publisher")
    for number in range(0, 100_000, 20):
        for each in range(20):
            publisher.publish(f"r/{number + each}", bytes(30_000), 1, retain=True)
        answers = [await publisher.expect(Puback) for _ in range(20)]
        answer = answers[-1]
        if answer.reason == ReasonCode.QUOTA_EXCEEDED:
            break
    assert number > 1_000
    assert answer.properties.reason_string == "the broker is short of memory"
    publisher.publish("r/0", b"smaller", 1, retain=True)
    assert (await publisher.expect(Puback)).reason < ReasonCode.UNSPECIFIED_ERROR
    assert ground.sheds("growth")


async def subscriptions(ground: Ground) -> None:
    """Those who are there may have more for longer than others may come, and those with few for longest."""
    modest, greedy = await ground.client("modest"), [await ground.client(f"greedy{number}") for number in range(30)]
    granted = 0
    for number, (start, client) in enumerate(itertools.product(range(0, 9_900, 1_100), greedy)):
        wanted = [f"{number}/{each}/x/x/x/x/x/x/x/+" for each in range(start, start + 1_100)]
        answer = await client.subscribe(*wanted)
        granted += answer.reasons.count(ReasonCode.GRANTED_QOS_0)
        if ReasonCode.QUOTA_EXCEEDED in answer.reasons:
            break
    assert granted > 50_000
    assert answer.properties.reason_string == "the broker is short of memory"
    assert await ground.is_refused("stranger")
    assert (await modest.subscribe("one/more")).reasons == (ReasonCode.GRANTED_QOS_0,)


async def sessions(ground: Ground) -> None:
    """Each has a will of 60 kB."""
    for number in range(10_000):
        will = Will("w", bytes(60_000), properties=Properties(will_delay_interval=100_000))
        probe, connack = await Probe.connect(ground.port, Connect(f"s{number}", V5, properties=KEPT, will=will))
        await probe.drop()
        if connack.reason == ReasonCode.SERVER_BUSY:
            break
    assert connack.properties.reason_string == "the broker is short of memory"
    assert ground.sheds("new_clients")
    _, connack = await Probe.connect(ground.port, Connect("s0", V5, clean_start=False, properties=KEPT))
    assert connack.reason == ReasonCode.SUCCESS
    assert connack.session_present


async def slow_readers(ground: Ground) -> None:
    """Subscribers that never read, each of something else; one who reads gets everything."""
    reader = await ground.client("reader")
    await reader.subscribe("mine")
    with ExitStack() as stack:
        for number in range(250):
            made = stack.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            made.connect(("127.0.0.1", ground.port))
            wanted = Subscribe(1, (SubscribeRequest(f"s/{number}"),))
            made.sendall(encode(Connect(f"slow{number}", V5), V5) + encode(wanted, V5))
        publisher = await ground.client("publisher")
        for number in itertools.count():
            for each in range(20):
                publisher.publish(f"s/{20 * number % 240 + each}", bytes(20_000))
            publisher.publish("mine", number.to_bytes(4))
            assert (await reader.expect(Publish)).payload == number.to_bytes(4)
            text = ground.log.read_text() if number % 30 == 0 else ""
            if "reason=slow_reader" in text and ground.sheds("slow_readers"):
                break


async def unfinished(ground: Ground) -> None:
    """Packets of 1.9 MB of which the last byte is missing. Who finishes nothing for seconds is disconnected."""
    packet = encode(Publish("u", bytes(1_900_000), 1, packet_id=1), V5)[:-1]
    with ExitStack() as stack:
        for number in range(400):
            made = stack.enter_context(socket.socket())
            made.connect(("127.0.0.1", ground.port))
            made.setblocking(False)
            waiting = memoryview(encode(Connect(f"u{number}", V5), V5) + packet)
            for _ in range(20):
                with contextlib.suppress(OSError):
                    waiting = waiting[made.send(waiting) :]
                await asyncio.sleep(0.001)
        assert ground.sheds("new_clients")


async def handshakes(ground: Ground) -> None:
    with ExitStack() as stack:
        for _ in range(4_000):
            made = stack.enter_context(socket.socket())
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(("127.0.0.1", ground.tls_port))
            if _ % 50 == 49:
                await asyncio.sleep(0.02)
        await asyncio.sleep(1)


@pytest.mark.parametrize(
    "fill",
    [queues, retained, subscriptions, sessions, slow_readers, unfinished, handshakes],
    ids=lambda way: way.__name__,
)
async def test_a_broker_stays_within_its_memory(fill: Callable[[Ground], Awaitable[None]], tmp_path: Path) -> None:
    async with little_memory(tmp_path) as ground:
        witness = await ground.client("witness")
        await witness.subscribe(SubscribeRequest("witness", 1))
        await fill(ground)
        witness.publish("witness", b"still served")
        assert (await witness.expect(Publish)).payload == b"still served"
        witness.send(Pingreq())
        await witness.expect(Pingresp)
        assert ground.peak <= BUDGET
        assert "sheds=new_clients" in ground.log.read_text() or fill is handshakes
