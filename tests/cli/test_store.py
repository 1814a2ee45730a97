"""`geomq store` says what is lost, and what it did."""

import json
import os
import shutil
from pathlib import Path

from click.testing import CliRunner

from geomq.broker.storage.records import SessionRecord
from geomq.broker.storage.store import open_store
from geomq.cli import main
from geomq.mqtt.session.changes import DeliveryAdded
from geomq.mqtt.session.message import ApplicationMessage


def _as_killed(folder: Path) -> Path:
    """The store of a broker that was killed: 50 messages queued, 50 retained."""
    store = open_store(folder / "open")
    store.load()
    store.put_session("s", SessionRecord(expiry_s=9))
    for number in range(50):
        message = ApplicationMessage(f"t/{number}", b"x" * 1_000, 1)
        store.record([DeliveryAdded("s", number, message, 1, False, (), 0)])
        store.put_retained(message)
        store.commit()
    killed = Path(shutil.copytree(folder / "open", folder / "store"))
    store.close()
    return killed


def test_the_commands_say_what_is_lost_and_what_was_done(tmp_path: Path) -> None:
    store, run = _as_killed(tmp_path), CliRunner().invoke
    sound = run(main, ["store", "check", str(store)])
    assert (sound.exit_code, sound.output) == (
        0,
        f"store {store} is sound\nreadable: 50 queued messages, 50 retained messages, 1 sessions\n",
    )
    log = max(store.glob("*.log"), key=lambda path: path.stat().st_size)
    os.truncate(log, log.stat().st_size // 2)
    refused = run(main, ["store", "check", str(store)])
    assert refused.exit_code == 1
    assert "synced batches are not there" in refused.output
    told = json.loads(run(main, ["store", "check", str(store), "--json"]).stdout)
    assert "is damaged" in told["problem"]
    assert any("synced batches are not there" in line for line in told["lost"])
    assert told["store"] == str(store)
    assert told["readable"]["sessions"] == 1
    assert told["copy"] is None
    assert f"geomq store repair {store}" in refused.output
    repaired = run(main, ["store", "repair", str(store)])
    assert repaired.exit_code == 0
    assert f"the damaged folder is now {store}.damaged" in repaired.output
    assert run(main, ["store", "check", str(store)]).exit_code == 0
    assert run(main, ["store", "check", str(tmp_path / "nothing")]).exit_code == 2
