"""Pauses between attempts to connect: they double, with jitter, up to a maximum. The only back-off there is.

Owns no clock and no dice: the caller sleeps, and brings a random number.
"""


class Backoff:
    """`pause_s` before each attempt; `reset` once a connection was good."""

    __slots__ = ("_first_s", "_most_s", "_next_s")

    def __init__(self, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = self._next_s = first_s
        self._most_s = most_s

    def pause_s(self, dice: float) -> float:
        """The next pause; `dice` in 0..1 takes up to half of it away, so that many clients do not return at once."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._most_s)
        return pause_s * (1.0 - dice / 2)

    def reset(self) -> None:
        self._next_s = self._first_s
