"""How much waits, as running totals that cost nothing to read: of all sessions of a server, or of all links."""


class Backlog:
    """`messages` that wait or are on their way and not finished, and the `bytes` they take in packets. What several
    receivers wait for counts once for each. `each_bytes_max` bounds the queue of every single one."""

    __slots__ = ("bytes", "each_bytes_max", "messages")

    def __init__(self) -> None:
        self.bytes = self.messages = 0
        self.bound(None)

    def bound(self, each_bytes_max: int | None) -> None:
        """Let no queue grow beyond this, whatever else bounds it; what is there stays."""
        self.each_bytes_max = float("inf") if each_bytes_max is None else each_bytes_max

    def add(self, size: int) -> None:
        self.bytes += size
        self.messages += 1

    def remove(self, size: int, messages: int = 1) -> None:
        self.bytes -= size
        self.messages -= messages
