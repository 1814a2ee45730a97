"""Connections that hold much while memory runs short, and where nothing moves: their clients do not read what waits for
them, or do not finish a large packet.

Knows how it was when it looked before, and only as long as it is asked.
"""

from collections.abc import Iterable
from typing import Final, Generic, Protocol, TypeVar

STUCK_S: Final = 5
"""After so many looks, one a second, at which nothing had moved."""

Standing = tuple[int, int]
"""Bytes that are not read, and those of an unfinished packet."""


class Holding(Protocol):
    @property
    def standing(self) -> Standing | None:
        """What it holds, None if that is little."""


HoldingT = TypeVar("HoldingT", bound=Holding)


class StuckConnections(Generic[HoldingT]):
    """Of one broker."""

    def __init__(self) -> None:
        self._seen: dict[HoldingT, tuple[Standing, int]] = {}

    def look(self, connections: Iterable[HoldingT]) -> list[HoldingT]:
        """Look at all there are, once a second; those that are stuck."""
        before, self._seen = self._seen, {}
        for connection in connections:
            standing = connection.standing
            if standing is not None:
                known, times = before.get(connection, (standing, 0))
                self._seen[connection] = standing, times + 1 if known == standing else 1
        return [connection for connection, (_, times) in self._seen.items() if times >= STUCK_S]

    def forget(self) -> None:
        """There is enough memory."""
        self._seen = {}
