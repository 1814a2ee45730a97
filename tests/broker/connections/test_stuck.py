"""Which connections let much wait while nothing moves."""

import dataclasses

from geomq.broker.connections.stuck import STUCK_S, Standing, StuckConnections


@dataclasses.dataclass(eq=False)
class Held:
    standing: Standing | None


def test_who_moves_nothing_for_long_is_stuck() -> None:
    still, reading, idle = Held((100, 0)), Held((100, 0)), Held(None)
    stuck: StuckConnections[Held] = StuckConnections()
    for look in range(STUCK_S - 1):
        reading.standing = (100 - look, 0)
        assert stuck.look([still, reading, idle]) == []
    reading.standing = (7, 0)
    assert stuck.look([still, reading, idle]) == [still]


def test_who_has_finished_begins_anew() -> None:
    held = Held((0, 9))
    stuck: StuckConnections[Held] = StuckConnections()
    for _ in range(STUCK_S - 1):
        stuck.look([held])
    held.standing = None
    stuck.look([held])
    held.standing = (0, 9)
    assert stuck.look([held]) == []
    for _ in range(STUCK_S - 2):
        stuck.look([held])
    stuck.forget()
    assert stuck.look([held]) == []
