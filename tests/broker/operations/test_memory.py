"""Freed memory is kept where the C library can be asked to; loading is not held up by the garbage collector."""

import gc
import platform
import subprocess
import sys

import pytest

from geomq.broker.operations.memory import PAUSE_NS, LongLived, collection_paused

PROGRAM = """
import resource
from geomq.broker.operations.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytes([1]) * 500_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

understood = keep_freed_memory()
faults()
print(understood, faults())
"""


def test_what_comes_and_goes_is_not_mapped_anew_each_time() -> None:
    """A hundred times half a megabyte are more than ten thousand pages."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    understood, faults = run.stdout.split()
    if platform.libc_ver()[0] == "glibc":
        assert understood == "True"
        assert int(faults) < 1_000
    else:
        assert understood in ("True", "False")


def collections_while_many_objects_are_made() -> int:
    seen = []

    def note(phase: str, _: object) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(100_000)]
    finally:
        gc.callbacks.remove(note)
    return len(seen) if kept else -1


def test_the_collector_waits_while_a_broker_loads() -> None:
    assert collections_while_many_objects_are_made()
    with collection_paused():
        assert not collections_while_many_objects_are_made()
    assert gc.isenabled()


def test_the_collector_goes_on_after_a_failure_and_stays_off_where_it_was_off() -> None:
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_survives_a_long_collection_is_not_looked_at_again() -> None:
    frozen, now_ns = [], [0]
    lived = LongLived(freeze=lambda: frozen.append(now_ns[0]), clock_ns=lambda: now_ns[0])
    for took_ns in (PAUSE_NS, PAUSE_NS + 1):
        lived("start", {})
        now_ns[0] += took_ns
        lived("stop", {})
    assert frozen == [2 * PAUSE_NS + 1]


CYCLES = """
import asyncio, gc
from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Disconnect, Publish, Subscribe, SubscribeRequest

async def come_and_go(port, politely):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(Connect("c"), 5) + encode(Subscribe(1, (SubscribeRequest("a/+"),)), 5))
    writer.write(encode(Publish("a/b", b"x", 1, packet_id=1), 5) + (encode(Disconnect(), 5) if politely else b""))
    await reader.read(5)
    writer.close()
    await writer.wait_closed()

async def main():
    listener = Listener(host="127.0.0.1", port=0)
    config = Config(listeners=(listener,), persistence=Persistence(enabled=False), metrics=Metrics(sys_interval_s=0))
    async with Broker(config) as broker:
        await come_and_go(broker.port, True)
        gc.collect()
        gc.disable()
        for number in range(40):
            await come_and_go(broker.port, number % 2)
        while broker.parts.handlers.connections:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        print(gc.collect())

import uvloop
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


def test_clients_that_come_and_go_leave_no_cycles_behind() -> None:
    run = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 40
