"""Workers as processes: started with their broker, shared out, started again when they die, and never left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import until
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import BrokerSettings, Config, Listener, Metrics, Persistence
from geomq.broker.local_federation import free_ports
from geomq.broker.platform import SYSTEM
from geomq.broker.server import Broker
from geomq.broker.sockets.descriptors import Descriptors
from geomq.broker.workers import crew as crews
from geomq.broker.workers import line as lines
from geomq.broker.workers import worker as workers
from geomq.broker.workers.crew import Crew
from geomq.errors import ConfigError
from geomq.mqtt.codec.packets import Connect, Disconnect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.testbed.processes import BrokerProcess

pytestmark = pytest.mark.anyio

CONFIG = Config(
    broker=BrokerSettings(workers=2),
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        await drop_all()


def crew_of(broker: Broker) -> Crew:
    assert broker.crew is not None
    return broker.crew


def carried(broker: Broker) -> list[int]:
    return [len(worker.remote.transports) for worker in crew_of(broker).workers.values()]


def pid_of(broker: Broker, name: str) -> int:
    line = crew_of(broker).workers[name].line
    assert isinstance(line, lines.ProcessLine)
    return line.process.pid


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_connections_are_shared_out_evenly(broker: Broker) -> None:
    for number in range(6):
        await client(broker, f"c{number}")
    await until(lambda: carried(broker) == [3, 3])
    assert broker.view.gauges()["workers"] == 2


async def test_a_worker_that_dies_takes_its_own_clients_only_and_is_started_again(broker: Broker) -> None:
    s, p = await client(broker, "s"), await client(broker, "p")
    kept = await client(broker, "kept", clean_start=False, properties=Properties(session_expiry_interval=60))
    await s.subscribe(SubscribeRequest("t", 1))
    await kept.subscribe(SubscribeRequest("t", 1))
    first = pid_of(broker, "1")  # carries s and kept
    os.kill(first, signal.SIGKILL)
    with pytest.raises(Closed):
        await s.expect(Publish)
    await until(lambda: broker.core.clients.keys() == {"kept", "p"})
    p.publish("t", b"meanwhile", 1)
    await p.expect(Puback)
    await until(lambda: len(crew_of(broker).workers) == 2)
    await crew_of(broker).workers["1"].ready
    back = await client(broker, "kept", clean_start=False, properties=Properties(session_expiry_interval=60))
    assert (await back.expect(Publish)).payload == b"meanwhile"
    assert broker.view.gauges()["workers_restarted"] == 1
    assert not is_there(first)
    assert carried(broker) == [1, 1]


async def test_clients_are_served_while_there_is_no_worker(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "PAUSE_S", (0.5, 0.5))
    for name in ("1", "2"):
        os.kill(pid_of(broker, name), signal.SIGKILL)
    await until(lambda: not crew_of(broker).workers)
    s = await client(broker, "s")
    await s.subscribe("t")
    await until(lambda: len(crew_of(broker).workers) == 2)
    for worker in crew_of(broker).workers.values():
        await worker.ready
    p = await client(broker, "p")
    p.publish("t", b"x")
    assert (await s.expect(Publish)).payload == b"x"
    assert sorted(carried(broker)) == [0, 1]


async def test_a_worker_that_keeps_dying_is_started_ever_more_rarely(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "PAUSE_S", (0.01, 0.04))
    crew = crew_of(broker)
    pauses = [crew._pause_s(crew.workers["1"]) for _ in range(4)]
    monkeypatch.setattr(crews, "STEADY_S", 0.0)
    pauses.append(crew._pause_s(crew.workers["1"]))
    assert pauses == [0.1, 0.04, 0.04, 0.04, 0.01]


async def test_a_worker_that_takes_nothing_is_replaced(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STUCK_S", 0.2)
    s, p = await client(broker, "s"), await client(broker, "p")
    await s.subscribe("t")
    stuck = pid_of(broker, "1")
    os.kill(stuck, signal.SIGSTOP)
    for _ in range(40):
        p.publish("t", b"x" * 500_000)
    await until(lambda: crew_of(broker).restarts == 1)
    assert not is_there(stuck)
    q = await client(broker, "q")
    p.publish("t", b"on it goes", 1)
    await p.expect(Puback)
    await q.subscribe("t")


async def test_a_worker_that_does_not_answer_is_replaced(broker: Broker) -> None:
    await client(broker, "c")
    stuck = pid_of(broker, "1")
    os.kill(stuck, signal.SIGSTOP)
    for _ in range(workers.ANSWERS_MISSED_MAX + 1):
        crew_of(broker).workers["1"].ping()
        crew_of(broker).workers["2"].ping()
        await asyncio.sleep(0.2)
    await until(lambda: crew_of(broker).restarts == 1)
    assert not is_there(stuck)


async def test_workers_end_with_their_broker() -> None:
    async with Broker(CONFIG) as broker:
        pids = [pid_of(broker, name) for name in ("1", "2")]
        probe = await client(broker, "c")
    assert [is_there(pid) for pid in pids] == [False, False]
    assert (await probe.expect(Disconnect)).reason == ReasonCode.SERVER_SHUTTING_DOWN
    await drop_all()


async def test_a_broker_whose_workers_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(ConfigError, match="workers"):
        await Broker(CONFIG).start()


async def test_a_system_that_cannot_have_workers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("socket.SCM_RIGHTS")
    with pytest.raises(ConfigError, match="passes no connections"):
        await Broker(CONFIG).start()


async def test_a_worker_that_ends_at_once_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ConfigError, match="workers"):
        await Broker(CONFIG).start()


async def test_auto_is_as_many_as_there_are_processors() -> None:
    config = msgspec.structs.replace(CONFIG, broker=BrokerSettings(workers="auto"))
    for processors in (1, 3):
        platform = replace(SYSTEM, processors=processors)
        async with Broker(config, platform=platform) as broker:
            assert (0 if broker.crew is None else len(broker.crew.workers)) == (0 if processors == 1 else processors)


async def test_workers_may_carry_what_one_process_may_have_open_each() -> None:
    platform = replace(SYSTEM, descriptors=lambda: Descriptors(1_000))
    crew = Crew(3, (), platform)
    alone, together = platform.descriptors(), crew.descriptors()
    assert together.connections(10_000) == 3 * alone.connections(10_000)


async def test_no_worker_outlives_its_broker(tmp_path: Path) -> None:
    listener = Listener(host="127.0.0.1", port=free_ports(1)[0])
    config = msgspec.structs.replace(
        CONFIG, broker=BrokerSettings(workers=2, data_dir=str(tmp_path)), listeners=(listener,)
    )
    process = BrokerProcess(config, tmp_path)
    async with process:
        children = process.children
        assert len(children) == 2
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for child in children:
                os.kill(child, number)  # as a terminal or a service manager does to all of a group
        probe, _ = await Probe.connect(process.port, Connect("c"))
        assert process.children == children
        process.kill()
        await until(lambda: not any(map(is_there, children)))
        with pytest.raises(Closed):
            await probe.receive()
        await process.start()
        children = process.children
        assert await process.stop() == 0
        assert not any(map(is_there, children))
    await drop_all()
