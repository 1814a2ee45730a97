"""Brokers that write their trace: embedded, as processes, stopped, killed, and with a disk that fails."""

import asyncio
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.broker.federated import until
from tests.probe import Probe

from geomq.broker.config.recording import Trace
from geomq.broker.config.settings import BrokerSettings, Config, Listener, Metrics, Persistence
from geomq.broker.local_federation import free_ports
from geomq.broker.operations.trace_writer import RECORD_BYTES, TraceWriter
from geomq.broker.server import Broker
from geomq.broker.state.counts import Counts
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.routing.core.model import BrokerId
from geomq.routing.trace.records import TraceRecord

pytestmark = pytest.mark.anyio
KEEPS = Properties(session_expiry_interval=1000)
RECORD = TraceRecord(1.0, BrokerId("geomq"), "moved", "location")


def config(directory: Path, **more: Any) -> Config:
    return Config(
        broker=BrokerSettings(name="paris", data_dir=str(directory / "data")),
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=1),
        trace=Trace(directory=str(directory / "trace"), **more),
    )


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted((directory / "trace").glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    return found


async def publish(port: int, count: int) -> None:
    probe, _ = await Probe.connect(port, Connect("c"))
    async with probe:
        await probe.subscribe(SubscribeRequest("t", 0))
        for _ in range(count):
            probe.publish("t", b"x", 1)
        for _ in range(count):
            while not isinstance(await probe.receive(), Puback):
                pass


async def test_everything_is_on_disk_when_a_broker_has_stopped(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        await publish(broker.port, 5)
        assert not rows(tmp_path)
    found = rows(tmp_path)
    assert [row["step"] for row in found] == [
        "connected",
        "subscribed",
        *["published", "matched", "delivered"] * 5,
        "disconnected",
    ]
    assert broker.view.counts()["trace_records"] == len(found)
    assert broker.view.counts()["trace_dropped"] == 0


async def test_a_file_is_finished_after_its_time_and_only_the_steps_asked_for_are_in_it(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, file_s_max=0.2, steps=("published",))) as broker:
        await publish(broker.port, 2)
        await until(lambda: len(rows(tmp_path)) == 2)
        await publish(broker.port, 1)
        await until(lambda: len(rows(tmp_path)) == 3)
    assert {row["step"] for row in rows(tmp_path)} == {"published"}


async def test_sessions_that_were_stored_are_in_the_trace_of_the_next_run(tmp_path: Path) -> None:
    stored = msgspec.structs.replace(config(tmp_path), persistence=Persistence())
    async with Broker(stored) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("s", properties=KEEPS))
        await probe.subscribe(SubscribeRequest("t", 1))
        await probe.disconnect()
        await publish(broker.port, 1)
    (event_id,) = {row["event_id"] for row in rows(tmp_path) if row["step"] == "published"}
    shutil.rmtree(tmp_path / "trace")
    async with Broker(stored) as broker:
        probe, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        await probe.expect(Publish)
        await probe.drop()
    assert [(row["step"], row["client"], row["topic"], row["event_id"]) for row in rows(tmp_path)][:4] == [
        ("disconnected", "s", None, None),
        ("subscribed", "s", "t", None),
        ("connected", "s", None, None),
        ("delivered", "s", "t", event_id),
    ]


async def test_records_the_disk_does_not_keep_up_with_are_dropped_and_counted(tmp_path: Path) -> None:
    counts = Counts()
    section = Trace(directory=str(tmp_path / "trace"), queue_bytes_max=10 * RECORD_BYTES)
    writer = TraceWriter(section, "geomq", counts, start_ms=1)
    writer.start(asyncio.get_running_loop())
    for _ in range(25):
        writer(RECORD)
    assert (counts.trace_records, counts.trace_dropped) == (10, 15)
    for _ in range(500):
        writer(RECORD)
        if counts.trace_records > 10:
            break
        await asyncio.sleep(0.02)
    await writer.close()
    assert counts.trace_records > 10
    assert len(rows(tmp_path)) == counts.trace_records


async def test_a_disk_that_fails_is_reported_and_the_broker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(config(tmp_path, file_rows_max=1)) as broker:
        shutil.rmtree(tmp_path / "trace")
        await publish(broker.port, 1)
        await until(lambda: "failed to write a trace file" in caplog.text)
        await until(lambda: broker.view.counts()["trace_dropped"] > 0)
        (tmp_path / "trace").mkdir()
        await publish(broker.port, 1)
    counts = broker.view.counts()
    assert len(rows(tmp_path)) == counts["trace_records"] - counts["trace_dropped"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_process_leaves_whole_files_only(tmp_path: Path, number: signal.Signals) -> None:
    (port,) = free_ports(1)
    (tmp_path / "geomq.toml").write_text(
        f"[broker]\nname = 'paris'\n[[listeners]]\nhost = '127.0.0.1'\nport = {port}\n[persistence]\nenabled = false\n"
        "[trace]\ndirectory = 'trace'\nfile_rows_max = 10\n"
    )
    command = (sys.executable, "-c", "from geomq.cli import main; main()", "broker", "-c", str(tmp_path / "geomq.toml"))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        await until_listening(port)
        await publish(port, 30)
        await until(lambda: len(rows(tmp_path)) >= 80)
    finally:
        process.send_signal(number)
        await process.wait()
    assert not list((tmp_path / "trace").glob(".*"))
    found = rows(tmp_path)
    if number == signal.SIGTERM:
        assert len(found) == 93
        assert found[-1]["step"] == "disconnected"


async def until_listening(port: int) -> None:
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise AssertionError("the broker never listened")
