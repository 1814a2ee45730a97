"""Who has logged in, and who asks too much. Time is a parameter; nothing here waits.

The token itself is compared once, at login; afterwards a random session id in a cookie stands for it.
"""

import hmac
import secrets
from collections import OrderedDict

from geomq.broker.security.limits import TokenBucket, address_block

SESSIONS_MAX = 100
SESSION_S = 12 * 3600.0
ADDRESSES_MAX = 1_000
LOGINS_PER_S, LOGIN_BURST = 0.2, 5
REQUESTS_PER_S, REQUEST_BURST = 50.0, 200


class Buckets:
    """A token bucket for each of the latest addresses."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, address: str, *, now: float) -> bool:
        """Whether this address may go on."""
        block = address_block(address)
        bucket = self._buckets.get(block)
        if bucket is None:
            bucket = self._buckets[block] = TokenBucket(self._rate_per_s, self._burst, now=now)
            if len(self._buckets) > ADDRESSES_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(block)
        return bucket.take(now=now)


class Access:
    """The doors of one dashboard. Without a token everybody who reaches it is in."""

    def __init__(self, *, token: str | None, admin: bool) -> None:
        self._token = token
        self.admin = admin
        self.requests = Buckets(REQUESTS_PER_S, REQUEST_BURST)
        self.logins = Buckets(LOGINS_PER_S, LOGIN_BURST)
        self._sessions: OrderedDict[str, float] = OrderedDict()

    @property
    def login_required(self) -> bool:
        return self._token is not None

    def log_in(self, token: str, *, now: float) -> str | None:
        """A new session for who has the token."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[session] = now + SESSION_S
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    def log_out(self, session: str | None) -> None:
        if session is not None:
            self._sessions.pop(session, None)

    def knows(self, session: str | None, *, now: float) -> bool:
        """Whether a request with this cookie is from somebody who logged in."""
        if self._token is None:
            return True
        return session is not None and self._sessions.get(session, float("-inf")) > now
