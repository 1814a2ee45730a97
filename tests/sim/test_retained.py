"""What simulated brokers retain is on their disks, whatever becomes of them."""

import pytest
from tests.routing.stage import row_of_squares

from geomq.routing.core.actions import ForgetNote, KeepNote, SendRetained, StoreRetained
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Version
from geomq.routing.node import Node
from geomq.routing.retained.sync import NOTE
from geomq.sim.engine import Simulation
from geomq.sim.retained import SKEW_MS, RetainedDisks

B1, B2 = BrokerId("b1"), BrokerId("b2")


def event(payload: bytes, time_ms: int = 5) -> Event:
    return Event(EventId(B2, 0, time_ms), "t", ClientId("c"), None, None, payload, retain=True)


@pytest.fixture
def disks() -> RetainedDisks:
    found = RetainedDisks(1)
    Simulation(row_of_squares(2), "flood_events", retained=found)
    return found


def test_the_latest_is_kept_and_deleted(disks: RetainedDisks) -> None:
    stored = disks.store(B1, StoreRetained(event(b"x"), None, None))
    assert stored.event.payload == b"x"
    assert disks.events[B1]["t"].payload == b"x"
    assert "t" not in disks.events[B2]
    disks.store(B1, StoreRetained(event(b""), None, None))
    assert disks.events[B1] == {}


def test_what_is_sent_is_what_is_kept_under_its_version_or_its_deletion(disks: RetainedDisks) -> None:
    disks.store(B1, StoreRetained(event(b"x"), None, None))
    sent = disks.message(B1, SendRetained(B2, "t", Version(77, B2)))
    assert (sent.event.payload, sent.event.id) == (b"x", EventId(B2, 0, 77))
    assert disks.message(B1, SendRetained(B2, "gone", Version(78, B2))).event.payload == b""


def test_versions_are_kept_and_clocks_differ(disks: RetainedDisks) -> None:
    nodes = Simulation(row_of_squares(2), "flood_events", retained=disks).nodes
    disks.note(B1, KeepNote(NOTE, b"k", b"v"))
    disks.note(B1, ForgetNote(NOTE, b"k"))
    with pytest.raises(KeyError):
        disks.note(B1, ForgetNote(NOTE, b"k"))
    own = [node for node in nodes.values() if isinstance(node, Node)]
    times = {disks.published(node, event(b"x"), 1_000).wall_ms for node in own}
    assert len(times) == 2
    assert all(1_000 <= time_ms < 1_000 + SKEW_MS for time_ms in times)
