"""How much waits, as running totals that cost nothing to read: of all sessions of a server, or of all links."""


class Backlog:
    """`messages` that wait or are on their way and not finished, and the `bytes` they take in packets. What several
    receivers wait for counts once for each."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.bytes = self.messages = 0

    def add(self, size: int) -> None:
        self.bytes += size
        self.messages += 1

    def remove(self, size: int, messages: int = 1) -> None:
        self.bytes -= size
        self.messages -= messages
