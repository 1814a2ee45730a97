"""The HTTP side of the dashboard: the page, its JSON API and its WebSocket. Translates; decides nothing."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from geomq import __version__
from geomq.dashboard.access import Access
from geomq.dashboard.commands import ActionRefused, ChangeStrategy, Commands, Move, Publish, Subscribe, Unsubscribe
from geomq.dashboard.guard import BODY_BYTES_MAX, COOKIE, Guard, error
from geomq.dashboard.hub import Page
from geomq.dashboard.live import Live
from geomq.dashboard.packed import PackedFiles, Packer
from geomq.dashboard.recorded import View
from geomq.dashboard.why import Traced, recorded_why
from geomq.errors import GeomqError, UsageError
from geomq.routing.core.model import EventId

PAGE = Path(__file__).parent / "page"
BODY_S = 10.0
SEND_S = 30.0
WHY_CLIENTS_MAX = 20
READ_ONLY = "Read-only: this dashboard was started without admin rights."

Body = TypeVar("Body", bound=msgspec.Struct)


class Login(msgspec.Struct):
    token: str


class Shown(NamedTuple):
    """What there is to see: a federation with what may be done to it, and recorded views."""

    live: Live | None = None
    commands: Commands | None = None
    views: tuple[View, ...] = ()


def make_app(shown: Shown, access: Access, *, page: Path = PAGE, secure: bool = False) -> Starlette:
    """The ASGI application."""
    handlers = _Handlers(shown, access, secure=secure)
    routes = [
        Route("/api/session", handlers.session),
        Route("/api/login", handlers.login, methods=["POST"]),
        Route("/api/logout", handlers.logout, methods=["POST"]),
        Route("/api/views", handlers.views),
        Route("/api/views/{view_id:path}", handlers.view),
        WebSocketRoute("/api/live", handlers.live),
        Route("/api/clients/{client_id:path}/move", handlers.move, methods=["POST"]),
        Route("/api/clients/{client_id:path}", handlers.client),
        Route("/api/why/{event_id:path}", handlers.why),
        Route("/api/publish", handlers.publish, methods=["POST"]),
        Route("/api/subscribe", handlers.subscribe, methods=["POST"]),
        Route("/api/unsubscribe", handlers.unsubscribe, methods=["POST"]),
        Route("/api/strategy", handlers.strategy, methods=["POST"]),
        Mount("/", PackedFiles(page)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={404: _not_found, 405: _not_allowed, ActionRefused: _forbidden, GeomqError: _refused},
    )


class _Handlers:
    def __init__(self, shown: Shown, access: Access, *, secure: bool) -> None:
        self._live = shown.live
        self._commands = shown.commands
        self._views = {view.id: view for view in shown.views}
        self._access = access
        self._secure = secure
        self._reading = asyncio.Lock()
        self._packer = Packer()

    async def session(self, request: Request) -> Response:
        access, known = self._access, self._knows(request)
        may = {
            "login_required": not known,
            "logged_in": known and access.login_required,
            "admin": access.admin and known,
        }
        return _json({"version": __version__, **may, "reason": None if access.admin else READ_ONLY})

    def _knows(self, request: HTTPConnection) -> bool:
        return self._access.knows(request.cookies.get(COOKIE), now=time.monotonic())

    async def login(self, request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        now = time.monotonic()
        if not self._access.logins.take(address, now=now):
            return error(429, "too many attempts; wait a few seconds")
        session = self._access.log_in((await read(request, Login)).token, now=now)
        if session is None:
            return error(401, "wrong token")
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
        found += [{"id": view.id, "title": view.title, "kind": view.kind} for view in self._views.values()]
        return _json(found)

    async def view(self, request: Request) -> Response:
        view = self._views.get(request.path_params["view_id"])
        if view is None:
            return error(404, "unknown view")
        return await self._packer.answer(view.id, view.body, "application/json", request.headers)

    async def client(self, request: Request) -> Response:
        live = self._need_live()
        await live.refresh_if_stale()
        found = live.state.client(request.path_params["client_id"])
        return error(404, "this client is not connected") if found is None else _json(found)

    async def why(self, request: Request) -> Response:
        clients = list(dict.fromkeys(request.query_params.getlist("client")))
        if len(clients) > WHY_CLIENTS_MAX:
            raise UsageError(f"at most {WHY_CLIENTS_MAX} clients in one request")
        event_id = EventId.parse(request.path_params["event_id"])
        view = request.query_params.get("view")
        if view is None:
            found = await self._need_live().why(event_id, clients)
            return error(404, "no broker has records of this event") if found is None else _json(found)
        trace = self._trace_of(view)
        async with self._reading:
            found = await asyncio.to_thread(recorded_why, trace, event_id, clients)
        return error(404, "the trace has no records of this event") if found is None else _json(found)

    def _trace_of(self, view_id: str) -> Traced:
        view = self._views.get(view_id)
        if view is None or view.trace is None:
            raise UsageError(f"there is no view of a trace named {view_id[:80]!r}")
        return view.trace

    async def publish(self, request: Request) -> Response:
        return _json({"id": await self._need_commands().publish(await read(request, Publish))})

    async def subscribe(self, request: Request) -> Response:
        return _json({"broker": await self._need_commands().subscribe(await read(request, Subscribe))})

    async def unsubscribe(self, request: Request) -> Response:
        await self._need_commands().unsubscribe(await read(request, Unsubscribe))
        return Response(status_code=204)

    async def move(self, request: Request) -> Response:
        await self._need_commands().move(request.path_params["client_id"], await read(request, Move))
        return Response(status_code=204)

    async def strategy(self, request: Request) -> Response:
        await self._need_commands().change_strategy(await read(request, ChangeStrategy))
        return Response(status_code=204)

    def _need_live(self) -> Live:
        if self._live is None:
            raise UsageError("this dashboard shows no federation")
        return self._live

    def _need_commands(self) -> Commands:
        if self._commands is None:
            raise UsageError("this dashboard shows no federation")
        return self._commands

    async def live(self, socket: WebSocket) -> None:
        """Push until the page goes away."""
        listener = None if self._live is None else await self._live.join()
        if self._live is None or listener is None:
            await socket.close(1013, "no federation to show" if self._live is None else "too many open pages")
            return
        await socket.accept()
        works = (_push(socket, listener, lambda: self._knows(socket)), _closed(socket))
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not self._knows(socket):
                await socket.close(1008, "log in first")
        finally:
            self._live.leave(listener)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _push(socket: WebSocket, listener: Page, allowed: Callable[[], bool]) -> None:
    """Send until the session has ended."""
    while True:
        messages = await listener.next()
        if not allowed():
            return
        for message in messages:
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
                    raise UsageError(f"a request body is at most {BODY_BYTES_MAX} bytes")
        return msgspec.json.decode(data, type=kind)
    except (TimeoutError, ClientDisconnect):
        raise UsageError("the request was incomplete") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise UsageError(f"invalid request: {problem}") from None


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _not_found(_request: Request, _cause: Exception) -> Response:
    return error(404, "not found")


async def _not_allowed(_request: Request, _cause: Exception) -> Response:
    return error(405, "method not allowed")


async def _forbidden(_request: Request, cause: Exception) -> Response:
    return error(403, str(cause))


async def _refused(_request: Request, cause: Exception) -> Response:
    return error(400, str(cause))
