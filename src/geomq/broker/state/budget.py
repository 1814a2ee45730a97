"""The memory a broker may take, how much of it is in use, and what it does without when that is too much.

What the process occupies is the truth, but memory that was freed stays with the process for a while and is used again.
So it counts less than it occupies by what is known to have been let go: the running totals of what clients make the
broker hold say how much. When the process grows although much should be free, that was not so, and it counts again.

Decides nothing else: those who would hold more ask what is being shed.
"""

from enum import IntEnum
from typing import Final


class Shed(IntEnum):
    """What goes first when memory runs short: each level includes those before it."""

    NOTHING = 0
    NEW_CLIENTS = 1
    """Clients without a session are refused, and few may be silent before their CONNECT."""
    SLOW_READERS = 2
    """Events of QoS 0 for clients that do not read; who reads or finishes nothing for seconds is disconnected."""
    GROWTH = 3
    """Subscriptions, retained events and fences beyond those there are; full queues are full sooner."""
    PUBLISHERS = 4
    """Events of QoS 1 and 2 are taken slowly, and refused."""


SHORT_OF_MEMORY: Final = "the broker is short of memory"
PERCENT: Final = {Shed.NEW_CLIENTS: 80, Shed.SLOW_READERS: 85, Shed.GROWTH: 90, Shed.PUBLISHERS: 95}
"""From which share of the budget on."""
BACK_PERCENT: Final = 3
"""By how much it has to fall below that again."""
DISTRUST: Final = 16
"""So many times what a process grew beyond all it ever occupied cannot have been free."""
BUFFER_BYTES: Final = 65_536
"""What a connection may hold that is not read, or not finished, while slow readers are shed."""
QUEUE_BYTES: Final = 262_144
"""What one session may have queued while growth is shed."""
FEW_SUBSCRIPTIONS: Final = 20
"""A client with no more than these may still subscribe then."""


class Budget:
    """Of one process; no `limit` is no budget. All figures are bytes."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.sheds = Shed.NOTHING
        self.resident = 0
        self.free = 0
        """What was let go and is still occupied."""
        self._held = 0
        self._peak = 0

    def bound(self, limit: int | None) -> None:
        """The settings changed."""
        self.limit = limit

    @property
    def used(self) -> int:
        return self.resident - self.free if self.resident else self._held

    def look(self, *, resident: int, held: int) -> bool:
        """This is what the process occupies, 0 if the system does not say, and what is known to be held; whether
        something else is shed from now on."""
        self._guess_free(resident - self.resident, held - self._held)
        if resident > self._peak:
            self.free -= DISTRUST * (resident - self._peak)
            self._peak = resident
        self.free = min(max(0, self.free), resident)
        self.resident, self._held = resident, held
        before, self.sheds = self.sheds, self._level()
        return before is not self.sheds

    def _guess_free(self, grown: int, added: int) -> None:
        """What is let go is free, until it goes back to the system. What is added may be where something was free; what
        the process grows by besides was not."""
        unknown = max(0, grown - max(0, added))
        self.free += min(0, grown) - added - unknown

    def _level(self) -> Shed:
        if self.limit is None:
            return Shed.NOTHING
        percent = 100 * self.used / self.limit
        level = Shed.NOTHING
        for each, begins in PERCENT.items():
            if percent >= begins - (BACK_PERCENT if each <= self.sheds else 0):
                level = each
        return level

    def buffer_bytes(self, wanted: int) -> int:
        """How much may wait in a connection for its client to read it, if it were for the settings `wanted`."""
        return min(wanted, BUFFER_BYTES) if self.sheds >= Shed.SLOW_READERS else wanted

    def may_subscribe(self, subscriptions: int) -> bool:
        """Whether a client that has so many may have one more."""
        if self.sheds < Shed.GROWTH:
            return True
        return self.sheds is Shed.GROWTH and subscriptions < FEW_SUBSCRIPTIONS
