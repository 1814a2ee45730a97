"""Keeps an eye on the memory of the process: looks at it every so often, and says when something is to be shed.

What is held is estimated by kind, from running totals; the prices are measured (`docs/topics/limits.md`).
"""

import logging
from asyncio import TimerHandle
from collections.abc import Callable, Mapping
from typing import Final

from geomq.broker.core import Core
from geomq.broker.packet_handlers import PacketHandlers
from geomq.broker.state.budget import PERCENT, Shed

log = logging.getLogger("geomq.broker")

SHARE: Final = 0.75
"""Of what there is, unless the settings say how much it is to be."""
LOOK_S: Final = 0.1
LOOK_CLOSELY_S: Final = 0.025
CLOSELY_PERCENT: Final = 60
"""From which share of the budget on it looks more often."""
GIVE_BACK_S: Final = 60.0
"""How often at most freed memory is returned, which takes a while."""
GIVE_BACK_SHARE: Final = 0.1

MESSAGE_BYTES: Final = 270
SUBSCRIPTION_BYTES: Final = 1_050
LEVEL_BYTES: Final = 20
SESSION_BYTES: Final = 1_600
CONNECTION_BYTES: Final = 1_500
TLS_BYTES: Final = 55_000


class MemoryWatch:
    """Of one broker, from `start` to `stop`."""

    def __init__(
        self,
        core: Core,
        handlers: PacketHandlers,
        *,
        retained_bytes: Callable[[], int],
        for_peers: Callable[[], tuple[int, int]],
    ) -> None:
        """`for_peers` says how many messages wait for peers, and their bytes."""
        self._core = core
        self._handlers = handlers
        self._platform = core.platform
        self._retained_bytes = retained_bytes
        self._for_peers = for_peers
        self._budget = core.budget
        self._timer: TimerHandle | None = None
        self._gave_back_at = 0.0

    def start(self) -> None:
        self.take_limits()
        if self._budget.limit is not None:
            self._core.outbox.watch(self.look)
            self._look_again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_limits(self) -> None:
        """The settings changed."""
        wanted, available = self._core.config.limits.memory_bytes_max, self._platform.available_bytes()
        self._budget.bound(wanted or (None if available is None else int(available * SHARE)))

    def held(self) -> Mapping[str, int]:
        """Roughly how many bytes there are of what, as far as it is known."""
        core, handlers = self._core, self._handlers
        waiting, unacknowledged = self._for_peers()
        moving = core.node.session_moves.held
        return {
            "sessions": SESSION_BYTES * len(core.clients),
            "subscriptions": SUBSCRIPTION_BYTES * core.filters.count + LEVEL_BYTES * core.filters.levels,
            "queues": MESSAGE_BYTES * core.backlog.messages + core.backlog.bytes,
            "retained": self._retained_bytes(),
            "connections": CONNECTION_BYTES * len(handlers.connections) + TLS_BYTES * handlers.encrypted,
            "links": MESSAGE_BYTES * (waiting + moving.messages) + unacknowledged + moving.bytes,
        }

    def look(self) -> None:
        """See how much memory is in use, and act."""
        budget = self._budget
        changed = budget.look(resident=self._platform.resident_bytes(), held=sum(self.held().values()))
        if changed:
            self._say()
            self._handlers.bound_memory()
        if budget.sheds and budget.limit is not None and budget.free > GIVE_BACK_SHARE * budget.limit:
            self._give_back()

    def _look_again(self) -> None:
        self.look()
        budget = self._budget
        closely = budget.limit is not None and 100 * budget.used > CLOSELY_PERCENT * budget.limit
        self._timer = self._core.loop.call_later(LOOK_CLOSELY_S if closely else LOOK_S, self._look_again)

    def _give_back(self) -> None:
        """What was free of one kind may be needed for another."""
        now = self._core.loop.time()
        if now - self._gave_back_at >= GIVE_BACK_S:
            self._gave_back_at = now
            self._platform.give_back()

    def _say(self) -> None:
        budget = self._budget
        extra: dict[str, object] = {"used": budget.used, "limit": budget.limit, "resident": budget.resident}
        if budget.sheds is Shed.NOTHING:
            log.info("there is enough memory again", extra=extra)
            return
        most = sorted(self.held().items(), key=lambda each: -each[1])[:2]
        extra |= {
            "percent": PERCENT[budget.sheds],
            "sheds": budget.sheds.name.lower(),
            "most": " ".join(f"{name}={size}" for name, size in most),
        }
        log.warning("memory runs short", extra=extra)
