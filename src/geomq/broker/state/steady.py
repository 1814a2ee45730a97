"""The clock in which things expire: it goes on where it was before a restart, and no other clock can make it jump.

While the broker runs it is the monotonic clock. What it showed is written down together with Unix time, and only the
difference of Unix time across a restart says how long the broker was away; it counts for something between nothing and
a bound, so that a wrong clock cannot make everything expire at once. A store that knows of no such clock begins with
Unix time.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

NOTE: Final = "clock"
PAUSE_S = 30.0
"""How often it is written down, at least."""

_decode = msgspec.msgpack.Decoder(tuple[float, float]).decode


class SteadyClock:
    """Call it for the time in seconds, which only differences matter of. `monotonic_s` never jumps, `wall_s` may."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        wall_s: Callable[[], float],
        notes: Mapping[bytes, bytes],
        *,
        away_s_max: float,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s
        self._noted_s = -PAUSE_S
        self._ahead_s = _begins_at(notes, wall_s(), away_s_max) - monotonic_s()

    def __call__(self) -> float:
        return self._monotonic_s() + self._ahead_s

    def unix_s(self, moment: float) -> float:
        """A moment of this clock as Unix time, for people."""
        return moment - self() + self._wall_s()

    def note(self, *, finally_: bool = False) -> bytes | None:
        """What to write down, if it is time for it or the end."""
        now = self._monotonic_s()
        if now - self._noted_s < PAUSE_S and not finally_:
            return None
        self._noted_s = now
        return msgspec.msgpack.encode((self(), self._wall_s()))


def _begins_at(notes: Mapping[bytes, bytes], wall_s: float, away_s_max: float) -> float:
    try:
        steady_s, noted_at_s = _decode(notes[b""])
    except (KeyError, msgspec.MsgspecError):
        return wall_s
    return steady_s + min(max(0.0, wall_s - noted_at_s), away_s_max)
