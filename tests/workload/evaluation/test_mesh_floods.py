"""How events spread along a mesh: on a line of four brokers that opens later, by hand."""

import numpy as np
import pytest

from geomq.workload.evaluation.evaluate import empty_tally
from geomq.workload.evaluation.mesh_floods import UNREACHED, Floods, MeshTimeline
from geomq.workload.evaluation.sent import EVENT, MESH
from geomq.workload.evaluation.views import NEVER

LATENCY = np.array([[0, 10, 1, 9], [10, 0, 20, 9], [1, 20, 0, 30], [9, 9, 30, 0]], np.int32)
OPENS_MS = 5_000


def line(opens_ms: int = OPENS_MS) -> MeshTimeline:
    """0 - 1 - 2 - 3 from the beginning, but 1 passes on to 2 only after it opened."""
    shut, opened, through, end = [[[1], [], []]], [[[0, 2], [2], [0]]], [[[1, 3], [3], [1]]], [[[2], []]]
    states = [*shut, [[0], [], [0]], *opened, *through, *end]
    sizes = np.array([[len(slot) for slot in [*state, []][:3]] for state in states])
    ends = np.cumsum(sizes.ravel()).reshape(sizes.shape)
    slot = np.array([[0, 1, 0, 0], [1, 0, 2, 0], [0, 1, 0, 2], [0, 0, 1, 0]], np.int64)
    return MeshTimeline(
        first=np.array([0, 1, 3, 4, 5], np.int64),
        tick=np.array([0, 0, opens_ms, 0, 0], np.int64),
        state=np.array([0, 1, 2, 3, 4], np.int64),
        start=np.concatenate((ends[:, :1] - sizes[:, :1], ends), axis=1),
        target=np.array([target for state in states for each in state for target in each], np.int64),
        slot=slot,
        changed=np.array([0, opens_ms], np.int64),
        scene=np.array([0, 1, 2], np.int64),
        control=np.zeros((4, 4), np.int64),
        longest_ms=60,
    )


def spread_from(broker: int, t_ms: int) -> tuple[list[int], list[list[int]]]:
    tally, floods = empty_tally(4, 100, 1), Floods(line(), LATENCY)
    ways = floods.of_topic(np.array([t_ms], np.int32), np.array([broker], np.int32), tally)
    offsets = ways.offset[ways.row[0]].tolist()
    return offsets, np.argwhere(tally.sent[MESH, EVENT]).tolist()


def test_an_event_goes_as_far_as_the_mesh_does() -> None:
    assert spread_from(0, 100) == ([0, 9, NEVER, NEVER], [[0, 1]])


def test_an_event_goes_all_the_way_once_the_mesh_has_opened() -> None:
    assert spread_from(0, 6_000) == ([0, 9, 29, 59], [[0, 1], [1, 2], [2, 3]])


@pytest.mark.parametrize(("arrives_ms", "passes"), [(OPENS_MS, False), (OPENS_MS + 1, True)])
def test_an_event_from_a_peer_meets_what_was_before_its_tick(arrives_ms: int, passes: bool) -> None:
    offsets, _ = spread_from(0, arrives_ms - 5 - 10)
    assert (offsets[2] != NEVER) == passes


@pytest.mark.parametrize(("arrives_ms", "passes"), [(OPENS_MS - 1, False), (OPENS_MS, True)])
def test_an_event_from_a_client_meets_what_its_tick_has_brought(arrives_ms: int, passes: bool) -> None:
    offsets, _ = spread_from(1, arrives_ms - 5)
    assert (offsets[2] != NEVER) == passes


def test_messages_that_led_to_no_delivery_are_of_no_use() -> None:
    tally, floods = empty_tally(4, 100, 1), Floods(line(), LATENCY)
    home = np.array([0, 0], np.int32)
    ways = floods.of_topic(np.array([6_000, 6_001], np.int32), home, tally)
    found = np.array([[0, 0, 4], [0, 2, 3], [1, 1, 0], [1, 3, 1]], np.int32)
    floods.count(home, ways, found, tally)
    assert tally.sent[MESH, EVENT].sum() == 6
    assert tally.sent_useful[MESH] == 2 + 3
    assert {int(ms): int(tally.sent_delays[MESH, ms]) for ms in np.flatnonzero(tally.sent_delays[MESH])} == {
        40: 3,
        70: 1,
    }


def test_a_topic_without_events_has_no_ways() -> None:
    none = np.empty(0, np.int32)
    assert len(Floods(line(), LATENCY).of_topic(none, none, empty_tally(4, 100, 1)).row) == 0
    assert UNREACHED < 0
