"""Snapshots of a federation for its archive: who is where and subscribed to what, asked over admin APIs.

Owns when they are taken. A broker that does not answer costs one snapshot, never the landing of events.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from geomq.errors import GeomqError
from geomq.pipeline.recent import Admin
from geomq.workload.traffic.archived_traffic import Snapshot, write_snapshot

KINDS = {"moved": "location", "subscribed": "subscription"}


def take_snapshot(archive: Path, admins: Sequence[Admin]) -> None:
    """Ask all brokers and keep their answers; one that does not answer is a DataError and nothing is kept."""
    outline = admins[0].outline()
    names = [admin.outline().brokers[0].name for admin in admins]
    t_ms = time.time() * 1000
    answers = [row for admin, name in zip(admins, names, strict=True) for row in admin.state(name)]
    rows = [row | {"kind": KINDS[row["step"]]} for row in answers]
    write_snapshot(archive, outline, Snapshot(t_ms, tuple(names), rows))


class Snapshots(threading.Thread):
    """Takes one now and then, until stopped; `complain` hears what went wrong."""

    def __init__(
        self, archive: Path, admins: Sequence[Admin], *, every_s: float, complain: Callable[[str], None]
    ) -> None:
        super().__init__(name="geomq-snapshots", daemon=True)
        self._archive = archive
        self._admins = admins
        self._every_s = every_s
        self._complain = complain
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                take_snapshot(self._archive, self._admins)
            except GeomqError as error:
                self._complain(f"no snapshot: {error}")

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()
