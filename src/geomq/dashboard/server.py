"""The dashboard from start to stop: `async with Dashboard(...)` beside whatever else runs on the event loop."""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from geomq.broker.config.settings import is_loopback
from geomq.broker.operations.http_server import Certificate, HttpServer
from geomq.dashboard.access import Access
from geomq.dashboard.app import Shown, make_app
from geomq.dashboard.commands import Commands, Movers
from geomq.dashboard.feed import Feed
from geomq.dashboard.live import Live
from geomq.dashboard.page_clients import Credentials, PageClients
from geomq.dashboard.recorded import View

PORT = 9884


class Doors(NamedTuple):
    """Where the page is served and who may do what there. On loopback no token is needed."""

    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = None
    admin: bool = False
    certificate: Certificate | None = None


def new_token() -> str:
    """A token for who gave none."""
    return secrets.token_urlsafe(24)


class Dashboard:
    """Serves the page. `url` is its address; `token`, if not None, is what a person must type to log in."""

    def __init__(
        self,
        feeds: Sequence[Feed],
        doors: Doors,
        *,
        views: Sequence[View] = (),
        movers: Movers | None = None,
        credentials: Credentials = Credentials(),  # noqa: B008
    ) -> None:
        self.token = doors.token if doors.token is not None or is_loopback(doors.host) else new_token()
        self._feeds = tuple(feeds)
        self._doors = doors
        self._page_clients = PageClients(credentials)
        self._live = Live(feeds, self._page_clients) if feeds else None
        self._looking: asyncio.Task[None] | None = None
        commands = None if self._live is None else Commands(self._live, self._page_clients, movers)
        shown = Shown(self._live, commands, tuple(views))
        access = Access(token=self.token, admin=doors.admin)
        app = make_app(shown, access, secure=doors.certificate is not None)
        self._server = HttpServer(
            app, doors.host, doors.port, what="the dashboard", websocket=True, certificate=doors.certificate
        )

    @property
    def url(self) -> str:
        scheme = "http" if self._doors.certificate is None else "https"
        host = f"[{self._doors.host}]" if ":" in self._doors.host else self._doors.host
        return f"{scheme}://{host}:{self._server.port}/"

    async def __aenter__(self) -> Self:
        await self._server.start()
        if self._live is not None:
            self._looking = asyncio.create_task(self._live.run(), name="geomq-dashboard")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()
        await self._page_clients.close()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for feed in self._feeds:
            await feed.close()
