"""The HTTP side of the dashboard: the page, its JSON API and its WebSocket. Translates; decides nothing."""

import asyncio
import time
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from geomq import __version__
from geomq.dashboard.access import Access
from geomq.dashboard.guard import BODY_BYTES_MAX, COOKIE, Guard, error
from geomq.dashboard.hub import Listener
from geomq.dashboard.live import Live
from geomq.errors import GeomqError, UsageError

PAGE = Path(__file__).parent / "page"
BODY_S = 10.0
SEND_S = 30.0

Body = TypeVar("Body", bound=msgspec.Struct)


class Login(msgspec.Struct):
    token: str


def make_app(live: Live | None, access: Access, *, page: Path = PAGE, secure: bool = False) -> Starlette:
    """The ASGI application; without a federation it shows recorded views only."""
    handlers = _Handlers(live, access, secure=secure)
    routes = [
        Route("/api/session", handlers.session),
        Route("/api/login", handlers.login, methods=["POST"]),
        Route("/api/logout", handlers.logout, methods=["POST"]),
        Route("/api/views", handlers.views),
        WebSocketRoute("/api/live", handlers.live),
        Mount("/", StaticFiles(directory=page, html=True, check_dir=False)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={404: _not_found, 405: _not_allowed, GeomqError: _refused},
    )


class _Handlers:
    def __init__(self, live: Live | None, access: Access, *, secure: bool) -> None:
        self._live = live
        self._access = access
        self._secure = secure

    async def session(self, request: Request) -> Response:
        access = self._access
        known = access.knows(request.cookies.get(COOKIE), now=time.monotonic())
        return _json({"version": __version__, "login_required": not known, "admin": access.admin and known})

    async def login(self, request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        now = time.monotonic()
        if not self._access.logins.take(address, now=now):
            return error(429, "too many attempts; wait a few seconds")
        session = self._access.log_in((await read(request, Login)).token, now=now)
        if session is None:
            return error(401, "that is not the token")
        answer = Response(status_code=204)
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=self._secure, path="/")
        return answer

    async def logout(self, request: Request) -> Response:
        self._access.log_out(request.cookies.get(COOKIE))
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=self._secure, path="/")
        return answer

    async def views(self, request: Request) -> Response:
        found = [] if self._live is None else [{"id": "live", "title": "Live", "kind": "live"}]
        return _json(found)

    async def live(self, socket: WebSocket) -> None:
        """Push until the page goes away."""
        listener = None if self._live is None else await self._live.join()
        if self._live is None or listener is None:
            await socket.close(1013, "no federation to show" if self._live is None else "too many pages look on")
            return
        await socket.accept()
        tasks = [asyncio.create_task(work) for work in (_push(socket, listener), _closed(socket))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._live.leave(listener)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _push(socket: WebSocket, listener: Listener) -> None:
    while True:
        for message in await listener.next():
            await asyncio.wait_for(socket.send_text(message.decode()), SEND_S)


async def _closed(socket: WebSocket) -> None:
    """Wait for the page to close its side; what it says on this socket means nothing."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def read(request: Request, kind: type[Body]) -> Body:
    """The body of a request, checked; UsageError in one line if it is not what it should be."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > BODY_BYTES_MAX:
                    raise UsageError(f"a request has at most {BODY_BYTES_MAX} bytes")
        return msgspec.json.decode(data, type=kind)
    except (TimeoutError, ClientDisconnect):
        raise UsageError("the request never ended") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise UsageError(f"the request is not understood: {problem}") from None


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _not_found(_request: Request, _cause: Exception) -> Response:
    return error(404, "no such path")


async def _not_allowed(_request: Request, _cause: Exception) -> Response:
    return error(405, "no such method here")


async def _refused(_request: Request, cause: Exception) -> Response:
    return error(400, str(cause))
