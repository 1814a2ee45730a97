"""Asks a broker's admin API: JSON over HTTP on a connection that stays open, in a thread so that nothing waits.

Whatever goes wrong comes out as one FeedError. A token is never sent in the clear to another machine.
"""

import asyncio
import http.client
import ssl
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from geomq.broker.operations.admin_address import check_address
from geomq.dashboard.feed import FeedError
from geomq.errors import UsageError

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 32_000_000


Answer = TypeVar("Answer")


class _Refusal(msgspec.Struct):
    error: str


class AdminClient:
    """One broker's admin API."""

    def __init__(self, url: str, token: str | None = None) -> None:
        url = check_address(url, token)
        parts = urlsplit(url)
        if parts.path not in ("", "/"):
            raise UsageError(f"{url!r} is not the address of an admin API, such as http://127.0.0.1:9883")
        if parts.username is not None or parts.password is not None:
            raise UsageError("the address of an admin API must not contain a password; use --admin-token-file")
        self.url = url.rstrip("/")
        self.host = parts.hostname or ""
        self._port = parts.port
        self._secure = parts.scheme == "https"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._asking = asyncio.Lock()

    async def get(self, path: str, kind: type[Answer]) -> Answer:
        return await self.ask("GET", path, kind)

    async def ask(self, method: str, path: str, kind: type[Answer], body: object = None) -> Answer:
        """The answer, checked; what the broker refuses is a UsageError in its own words."""
        data = None if body is None else msgspec.json.encode(body)
        async with self._asking:
            try:
                status, answer = await asyncio.to_thread(self._exchange, method, path, data)
            except (OSError, http.client.HTTPException, UnicodeError) as error:
                raise FeedError(f"{self.url} does not answer: {error or type(error).__name__}") from None
        try:
            if status < 400:
                return msgspec.json.decode(answer, type=kind)
            reason = msgspec.json.decode(answer, type=_Refusal).error
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise FeedError(f"{self.url}{path} answered {status} with an unexpected body") from None
        raise (UsageError if status in (400, 409) else FeedError)(f"{self.url}: {reason}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """One request; a connection that the broker closed meanwhile is opened again, once."""
        fresh = self._connection is None
        connection = self._connection or self._connect()
        self._connection = None
        try:
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX + 1)
            if len(answer) > ANSWER_BYTES_MAX:
                raise http.client.HTTPException("the answer is too long")
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            connection.close()
            if fresh or method != "GET":
                raise
            return self._exchange(method, path, body)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return response.status, answer

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self._port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self.host, self._port, timeout=TIMEOUT_S)
