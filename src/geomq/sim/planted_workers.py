"""Faults of one line in workers, and in what their broker makes of what they report."""

from geomq.sim.planting import Fault

_REMOTE = "geomq.broker.workers.remote"
_CARRYING = "geomq.broker.workers.carrying"
_FRAMES = "geomq.broker.workers.frames"

IN_WORKERS: tuple[Fault, ...] = (
    Fault(
        "a connection that a client closed stays",
        _REMOTE,
        "self._lose(ConnectionResetError() if broken else None)",
        "pass",
        seed=1,
        simulation="workers",
    ),
    Fault(
        "what goes to many misses the first of them",
        _FRAMES,
        "self._group = [self._keys.pop()]",
        "self._group = self._keys.pop() and []",
        seed=6,
        simulation="workers",
    ),
    Fault(
        "what goes to many goes before what was written earlier",
        _FRAMES,
        "self._keys.append(Order.WRITE_ALL * KIND + len(some))",
        "self._keys.insert(0, Order.WRITE_ALL * KIND + len(some))",
        seed=4,
        simulation="workers",
    ),
    Fault(
        "a worker does not report that a connection ended",
        _CARRYING,
        'self.gathering.say(Report.CLOSED, number, BROKEN if broken else b"")',
        "pass",
        seed=1,
        simulation="workers",
    ),
)
