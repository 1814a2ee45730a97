"""How much happens a minute, on average over the last one, five and fifteen: as Mosquitto reckons it for `$SYS`.

The older a minute is the less it counts. Knows totals and the seconds between them, no clock.
"""

from collections.abc import Iterator, Mapping
from math import exp
from typing import Final

MINUTES: Final = (1, 5, 15)


class Loads:
    """The averages of named totals."""

    def __init__(self, names: Mapping[str, int]) -> None:
        self._totals = dict(names)
        self._averages = {(name, minutes): 0.0 for name in names for minutes in MINUTES}

    def take(self, totals: Mapping[str, int], seconds: float) -> None:
        """These are the totals so many seconds after the last ones."""
        if seconds <= 0:
            return
        for (name, minutes), average in self._averages.items():
            a_minute = (totals[name] - self._totals[name]) * 60 / seconds
            fades = exp(-seconds / (60 * minutes))
            self._averages[name, minutes] = a_minute + fades * (average - a_minute)
        self._totals = dict(totals)

    def values(self) -> Iterator[tuple[str, str]]:
        """Under the names that Mosquitto gives them."""
        for (name, minutes), average in self._averages.items():
            yield f"load/{name}/{minutes}min", f"{average:.2f}"
