"""Group commit: acknowledgements in order and only after the sync, none lost to a kill, none after a failure."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests import patience
from tests.broker.federated import until

from geomq.broker.storage.committer import LOOK_EVERY_S, Committer
from geomq.broker.storage.errors import StoreError, StoreFull
from geomq.broker.storage.memory import MemoryStore, NoDisk
from geomq.broker.storage.records import SessionRecord
from geomq.broker.storage.store import Store, open_store
from geomq.broker.storage.writes import Writes
from geomq.mqtt.session.changes import DeliveryAdded, DeliveryRemoved
from geomq.mqtt.session.message import ApplicationMessage


class FakeDisk(NoDisk):
    """Counts and delays; fails when told to."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.may_sync = threading.Event()
        """Taken back, every sync lasts until it is given again."""
        self.may_sync.set()
        self.room = True
        self.write_error: StoreError | None = None
        self.sync_error: StoreError | None = None

    def write(self, writes: Writes) -> None:
        if self.write_error is not None:
            raise self.write_error
        self.log.append("write")

    def has_room(self) -> bool:
        return self.room

    def sync(self) -> None:
        assert self.may_sync.wait(60)
        if self.sync_error is not None:
            raise self.sync_error
        self.log.append("sync")


def unexpected(error: StoreError) -> None:
    pytest.fail(str(error))


def note(store: Store, value: bytes = b"v") -> None:
    store.put_note("k", os.urandom(8), value)


def test_callbacks_run_in_order_after_write_and_sync() -> None:
    async def main() -> None:
        disk = FakeDisk()
        store = Store(disk)
        committer = Committer(store, unexpected)
        for number in range(100):
            note(store)
            committer.when_safe(lambda number=number: disk.log.append(f"ack {number}"))  # type: ignore[misc]
        assert disk.log == []
        await committer.safe()
        assert disk.log == ["write", "sync", *(f"ack {number}" for number in range(100))]
        await committer.close()

    patience.run(main())


def test_ticks_during_a_sync_share_the_next_one() -> None:
    async def main() -> None:
        disk = FakeDisk()
        disk.may_sync.clear()
        store = Store(disk)
        committer = Committer(store, unexpected)
        acks: list[int] = []
        for number in range(40):
            note(store)
            committer.when_safe(lambda number=number: acks.append(number))  # type: ignore[misc]
            await asyncio.sleep(0.001)
        await until(lambda: disk.log.count("write") == 40)
        disk.may_sync.set()
        await committer.safe()
        assert acks == list(range(40))
        assert disk.log.count("write") == 40
        assert disk.log.count("sync") == 2
        await committer.close()

    patience.run(main())


def test_the_loop_goes_on_while_the_disk_syncs() -> None:
    async def main() -> None:
        disk = FakeDisk()
        disk.may_sync.clear()
        store = Store(disk)
        committer = Committer(store, unexpected)
        note(store)
        waiting = asyncio.create_task(committer.safe())
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not waiting.done()
        disk.may_sync.set()
        await waiting
        await committer.close()

    patience.run(main())


def test_writes_nobody_waits_for_are_not_synced_alone() -> None:
    async def main() -> None:
        disk = FakeDisk()
        store = Store(disk)
        committer = Committer(store, unexpected)
        note(store)
        committer.wrote()
        await asyncio.sleep(0.02)
        assert disk.log == ["write"]
        await committer.safe()
        assert disk.log == ["write", "sync"]
        await committer.safe()
        assert disk.log == ["write", "sync"]
        await committer.close()

    patience.run(main())


def test_a_full_disk_withholds_acknowledgements_until_there_is_room() -> None:
    async def main() -> None:
        disk = FakeDisk()
        store = Store(disk)
        committer = Committer(store, unexpected, retry_s=0.02)
        disk.write_error = StoreFull("full")
        note(store)
        acks: list[int] = []
        committer.when_safe(lambda: acks.append(1))
        await until(lambda: committer.full)
        assert acks == []
        assert committer.failed is None
        disk.write_error = None
        await committer.safe()
        assert acks == [1]
        await asyncio.sleep(LOOK_EVERY_S)
        assert not committer.full
        await committer.close()

    patience.run(main())


def test_too_little_free_space_counts_as_full_until_there_is_more() -> None:
    async def main() -> None:
        disk = FakeDisk()
        committer = Committer(Store(disk), unexpected)
        assert not committer.full
        disk.room = False
        await asyncio.sleep(LOOK_EVERY_S)
        assert committer.full
        await committer.safe()
        disk.room = True
        await asyncio.sleep(LOOK_EVERY_S)
        assert not committer.full
        await committer.close()

    patience.run(main())


def test_a_callback_that_raises_costs_the_others_nothing() -> None:
    async def main() -> None:
        caught: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context["exception"]))
        committer = Committer(Store(FakeDisk()), unexpected)
        acks: list[int] = []
        error = RuntimeError("one client")

        def bad() -> None:
            raise error

        committer.when_safe(bad)
        committer.when_safe(lambda: acks.append(1))
        await committer.safe()
        assert acks == [1]
        assert caught == [error]
        await committer.close()

    patience.run(main())


@pytest.mark.parametrize("where", ["write", "sync"])
def test_after_a_failure_nothing_is_acknowledged(where: str) -> None:
    async def main() -> None:
        disk = FakeDisk()
        store = Store(disk)
        failures: list[StoreError] = []
        committer = Committer(store, failures.append)
        error = StoreError("broken")
        if where == "write":
            disk.write_error = error
        else:
            disk.sync_error = error
        note(store)
        committer.when_safe(lambda: pytest.fail("acknowledged"))
        with pytest.raises(StoreError, match="broken"):
            await committer.safe()
        note(store)
        committer.when_safe(lambda: pytest.fail("acknowledged"))
        with pytest.raises(StoreError, match="broken"):
            await committer.safe()
        assert failures == [error]
        await committer.close()

    patience.run(main())


def test_a_memory_store_acknowledges_at_the_end_of_the_tick() -> None:
    async def main() -> None:
        committer = Committer(MemoryStore(), unexpected)
        acks: list[int] = []
        committer.when_safe(lambda: acks.append(1))
        assert acks == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert acks == [1]
        assert committer.syncs == 0
        await committer.close()

    patience.run(main())


CHILD = """
import asyncio, os, sys
from geomq.broker.storage.committer import LOOK_EVERY_S, Committer
from geomq.broker.storage.store import open_store
from geomq.broker.storage.records import SessionRecord
from geomq.mqtt.session.changes import DeliveryAdded, DeliveryRemoved
from geomq.mqtt.session.message import ApplicationMessage

async def main():
    store = open_store(sys.argv[1])
    state = store.load()
    number = int(sys.argv[2])
    committer = Committer(store, print)
    store.put_session("c", SessionRecord())
    while True:
        for _ in range(16):
            number += 1
            store.record([DeliveryAdded("c", number, ApplicationMessage("t", b"%d" % number, 1), 1, False, (), 0)])
            if number % 3 == 0:
                store.record([DeliveryRemoved("c", number - 2)])
            line = f"{number}\\n".encode()
            committer.when_safe(lambda line=line: os.write(1, line))
        await asyncio.sleep(0)

asyncio.run(main())
"""


def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path) -> None:
    choose = random.Random(5)
    acked = 0
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "store"), str(acked + 1000)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        try:
            first = child.stdout.readline()
            time.sleep(choose.random() * 0.15)
        finally:
            child.send_signal(signal.SIGKILL)
        lines = (first + child.stdout.read()).split(b"\n")[:-1]
        child.stdout.close()
        child.wait()
        start, acked = int(lines[0]), int(lines[-1])
        store = open_store(tmp_path / "store")
        state = store.load()
        found = {delivery.number: delivery.message.payload for delivery in state.sessions["c"].deliveries}
        assert {number for number in range(start, acked + 1) if number % 3 != 1} <= found.keys()
        assert all(payload == b"%d" % number for number, payload in found.items())
        assert not {number for number in range(start, acked - 1) if number % 3 == 1} & found.keys()
        store.record([DeliveryRemoved("c", number) for number in found])
        store.close()


def test_with_128_in_flight_acknowledgements_share_syncs(tmp_path: Path) -> None:
    """Else the disk, which syncs some hundred times a second, would say how many there are."""

    async def main() -> int:
        store = open_store(tmp_path / "store")
        store.load()
        store.put_session("c", SessionRecord())
        committer = Committer(store, unexpected)
        payload, total, sent, acked = b"x" * 100, 10_000, 0, 0
        done = asyncio.Event()

        def publish() -> None:
            nonlocal sent
            sent += 1
            store.record([DeliveryAdded("c", sent, ApplicationMessage("t", payload, 1), 1, False, (), 0)])
            committer.when_safe(on_safe)

        def on_safe() -> None:
            nonlocal acked
            acked += 1
            store.record([DeliveryRemoved("c", acked)])
            if sent < total:
                publish()
            elif acked == total:
                done.set()

        for _ in range(128):
            publish()
        await done.wait()
        await committer.close()
        store.close()
        return committer.syncs

    assert patience.run(main()) < 10_000 / 20
