"""How many subscriptions there are and how long they are, as running totals."""


class Filters:
    """Of all sessions together."""

    __slots__ = ("count", "levels")

    def __init__(self) -> None:
        self.count = self.levels = 0

    def add(self, count: int, levels: int) -> None:
        """So many filters with so many levels in all; less than nothing if they are gone."""
        self.count += count
        self.levels += levels
