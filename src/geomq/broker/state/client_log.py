"""Lines in the log about clients: who connected, who disconnected and who was refused, and why.

Owns how many there are: of each kind so many in ten seconds as the settings say, and one that says how many more there
were. The totals of the broker count all of them.
"""

import logging
from collections.abc import Callable
from typing import Final

from geomq.broker.config.recording import Log
from geomq.broker.state.counts import Counts
from geomq.mqtt.codec.reasons import ReasonCode

log = logging.getLogger("geomq.broker")

SPAN_S: Final = 10.0
ID_CHARS_MAX: Final = 200
LEFT_UNASKED = "connection lost"


def in_words(reason: ReasonCode) -> str:
    """A reason code as people read it."""
    return reason.name.lower().replace("_", " ")


class _Lines:
    """Of one kind; `unlogged` are those that were too many since the last one that says so."""

    def __init__(self) -> None:
        self.since_s = -SPAN_S
        self.logged = self.unlogged = 0


class ClientLog:
    """One per broker. `report` is to be called every second or so."""

    def __init__(self, counts: Counts, *, settings: Callable[[], Log], now_s: Callable[[], float]) -> None:
        self._counts = counts
        self._settings = settings
        self._now_s = now_s
        self._kinds = {kind: _Lines() for kind in ("client connected", "client disconnected", "client refused")}

    def connected(self, client_id: str, address: str, **more: object) -> None:
        """A client was let in."""
        self._counts.clients_connected += 1
        if self._settings().clients == "all":
            self._line("client connected", client_id, address, **more)

    def disconnected(self, client_id: str, address: str, reason: str) -> None:
        """A client that was let in is gone, or was sent away."""
        self._counts.clients_disconnected += 1
        if self._settings().clients == "all":
            self._line("client disconnected", client_id, address, reason=reason)

    def refused(self, client_id: str | None, address: str, reason: str) -> None:
        """A client was not let in, or not even asked who it is."""
        if self._settings().clients != "none":
            self._line("client refused", client_id, address, reason=reason)

    def report(self) -> None:
        """Say how many there were beside those that were logged, when their time is over."""
        for kind, lines in self._kinds.items():
            if lines.unlogged and self._now_s() - lines.since_s >= SPAN_S:
                log.info(f"{kind}, more of them", extra={"count": lines.unlogged, "seconds": round(SPAN_S)})
                lines.unlogged = 0

    def _line(self, kind: str, client_id: str | None, address: str, **more: object) -> None:
        lines, now = self._kinds[kind], self._now_s()
        if now - lines.since_s >= SPAN_S:
            self.report()
            lines.since_s, lines.logged = now, 0
        if lines.logged >= self._settings().client_lines_max:
            lines.unlogged += 1
            self._counts.client_lines_unlogged += 1
            return
        lines.logged += 1
        who = {} if client_id is None else {"client": client_id[:ID_CHARS_MAX]}
        said = {name: value for name, value in more.items() if value is not None}
        log.info(kind, extra={**who, "address": address, **said})
