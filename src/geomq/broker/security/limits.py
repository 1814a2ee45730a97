"""Rates and counts that bound what one client or one address may cost.

Time is a parameter; nothing here waits.
"""

import ipaddress


class TokenBucket:
    """Lets `rate_per_s` things a second through, and `burst` at once after a rest."""

    __slots__ = ("_burst", "_rate", "_tokens", "_when")

    def __init__(self, rate_per_s: float, burst: int, *, now: float) -> None:
        self._rate = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._when = now

    def take(self, *, now: float) -> bool:
        """Whether one more may pass now; counts it if so."""
        if now > self._when:
            self._tokens = min(self._burst, self._tokens + (now - self._when) * self._rate)
            self._when = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, *, now: float) -> float:
        """Seconds from `now` until `take` can succeed; 0 if it can at once."""
        missing = 1.0 - self._tokens - max(0.0, now - self._when) * self._rate
        return max(0.0, missing / self._rate)


def make_bucket(rate_per_s: float, burst: int, *, now: float) -> TokenBucket | None:
    """A bucket, or None where a rate of 0 means no limit."""
    return TokenBucket(rate_per_s, burst, now=now) if rate_per_s > 0 else None


class AddressCounts:
    """Counts connections per address and refuses those above the maximum; 0 is no limit.

    An address that has none left takes no memory, so the table is bounded by the connections themselves.
    """

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def allow(self, maximum: int) -> None:
        """The settings changed."""
        self.maximum = maximum

    def count(self, address: str) -> int:
        return self._counts.get(address_block(address), 0)

    def admit(self, address: str) -> bool:
        """Count one more connection, or refuse it."""
        block = address_block(address)
        count = self._counts.get(block, 0)
        if self.maximum and count >= self.maximum:
            return False
        self._counts[block] = count + 1
        return True

    def release(self, address: str) -> None:
        """Undo one `admit`."""
        block = address_block(address)
        count = self._counts.get(block, 0)
        if count > 1:
            self._counts[block] = count - 1
        else:
            self._counts.pop(block, None)


def address_block(address: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 an IPv6 host can choose from freely."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped is not None else f"{parsed.packed[:8].hex()}/64"
