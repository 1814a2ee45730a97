"""A dashboard on a real port and a page that speaks to it, for tests."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from geomq.broker.local_federation import Site, local_configs
from geomq.dashboard.feed import Feed
from geomq.dashboard.server import Dashboard, Doors

OURS = {"X-GeoMQ": "1"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class Page:
    """Asks over HTTP, in a thread, so that the server on this loop can answer."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.netloc = urlsplit(dashboard.url).netloc

    async def ask(
        self, path: str, method: str = "GET", body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        return await asyncio.to_thread(self._ask, path, method, data, headers or {})

    async def post(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
        return await self.ask(path, "POST", {} if body is None else body, {**OURS, **(headers or {})})

    def _ask(self, path: str, method: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        host, _, port = self.netloc.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            is_json = found.get("content-type", "").startswith("application/json")
            return Answer(response.status, found, json.loads(data) if is_json else data.decode())
        finally:
            connection.close()

    def live(self, **headers: str) -> connect:
        return connect(f"ws://{self.netloc}/api/live", additional_headers=headers, max_size=None)


async def message(socket: ClientConnection) -> dict[str, Any]:
    """The next message of the WebSocket."""
    found: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 30))
    return found


@asynccontextmanager
async def dashboard(feeds: Sequence[Feed] = (), doors: Doors | None = None, **more: Any) -> AsyncIterator[Page]:
    """Serve a dashboard on a free port of loopback."""
    async with Dashboard(feeds, (doors or Doors(admin=True))._replace(port=0), **more) as running:
        yield Page(running)


__all__ = ["Answer", "Page", "Site", "dashboard", "local_configs", "message"]
