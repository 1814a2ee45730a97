"""How long a message takes to a peer, from probes that come back."""

SMOOTHING = 0.2
ROUND_TRIP_MS_MAX = 600_000.0


class Latency:
    """One way over a link: a moving mean, None before the first probe is back."""

    def __init__(self) -> None:
        self.mean_ms: float | None = None

    def measure(self, round_trip_ns: int) -> float | None:
        """A probe came back: half of its way in milliseconds, None if that cannot be."""
        round_trip_ms = round_trip_ns / 1e6
        if not 0 <= round_trip_ms < ROUND_TRIP_MS_MAX:
            return None
        one_way_ms = round_trip_ms / 2
        before = one_way_ms if self.mean_ms is None else self.mean_ms
        self.mean_ms = before + SMOOTHING * (one_way_ms - before)
        return one_way_ms
