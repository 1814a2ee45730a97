"""The words of the mesh protocol."""

import math

import msgspec
import pytest

from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.mesh.messages import Announcement, LostRoute, Membership, Outbox, Stamp

A, B = BrokerId("a"), BrokerId("b")
SOUND = Announcement("g", A, 1, 1, True, (B,), 5.0)


def test_a_later_map_wins_and_of_equal_ones_that_of_the_smallest_origin() -> None:
    assert Stamp(2, B).supersedes(Stamp(1, A))
    assert Stamp(1, A).supersedes(Stamp(1, B))
    assert Stamp(1, B).supersedes(None)
    assert not Stamp(1, A).supersedes(Stamp(1, A))
    assert not Stamp(1, A).supersedes(Stamp(2, B))


def test_entries_read_as_words() -> None:
    assert str(SOUND) == "g core=a sequence=1 distance=1 member parents=b age=5ms"
    assert str(Membership("g", A, 1)) == "joins g core=a sequence=1"
    assert str(Membership("g", A, 1, member=False)) == "leaves g core=a sequence=1"
    assert str(LostRoute("g", A, 1)) == "g core=a sequence=1"


@pytest.mark.parametrize(
    "flaw",
    [
        {"group": "x" * 2_000},
        {"sequence": 0},
        {"sequence": 2**60},
        {"distance": -1},
        {"distance": 2},
        {"parents": (B,) * 9},
        {"age_ms": -1.0},
        {"age_ms": 100.0},
        {"age_ms": math.nan},
    ],
)
def test_an_announcement_out_of_range_is_unsound(flaw: dict[str, object]) -> None:
    assert SOUND.is_sound(brokers=2, lifetime_ms=100.0)
    assert not msgspec.structs.replace(SOUND, **flaw).is_sound(brokers=2, lifetime_ms=100.0)


def test_memberships_and_lost_routes_out_of_range_are_unsound() -> None:
    assert Membership("g", A, 1).is_sound()
    assert LostRoute("g", A, 0).is_sound()
    assert not Membership("g", A, 0).is_sound()
    assert not LostRoute("g", A, -1).is_sound()
    assert not LostRoute("x" * 2_000, A, 1).is_sound()


def test_a_group_that_changed_twice_is_announced_once() -> None:
    outbox = Outbox()
    assert not outbox
    outbox.add_announcement(B, "g")
    outbox.add_announcement(B, "g")
    assert outbox
    assert outbox.announce == {B: {"g": None}}


def test_every_entry_survives_the_wire() -> None:
    for entry in (SOUND, Membership("g", A, 1, stamp=Stamp(3, B)), LostRoute("g", A, 1)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=type(entry)) == entry
