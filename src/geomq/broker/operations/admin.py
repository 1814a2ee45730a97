"""The admin API: health, metrics, clients, sessions, subscriptions, the trace, kicking. JSON over HTTP.

Only translates between HTTP and a BrokerView. Whoever has the token may do everything; without a token only
programs on this machine may, and no web page (a browser's request names the page's origin or host).
"""

import hmac
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from geomq import __version__
from geomq.broker.operations.admin_federation import federation_routes
from geomq.broker.operations.admin_view import BrokerView, SubscriptionView
from geomq.broker.operations.metrics import CONTENT_TYPE, make_registry, metrics_text
from geomq.broker.security.own_names import is_loopback_name
from geomq.routing.trace.records import record_fields

PAGE_DEFAULT, PAGE_MAX = 100, 1_000


def make_app(view: BrokerView, token: Callable[[], str | None]) -> Starlette:
    """The ASGI application; `token` is asked at every request, so that a reload can change it."""
    handlers = _Handlers(view)
    routes = [
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
        Route("/api/v1/broker", handlers.broker),
        Route("/api/v1/config", handlers.config),
        Route("/api/v1/clients", handlers.clients),
        Route("/api/v1/sessions", handlers.sessions),
        Route("/api/v1/sessions/{client_id:path}", handlers.session, methods=["GET"]),
        Route("/api/v1/sessions/{client_id:path}", handlers.kick, methods=["DELETE"]),
        Route("/api/v1/subscriptions", handlers.subscriptions),
        Route("/api/v1/trace", handlers.trace),
    ]
    routes += federation_routes(view)
    guard = Middleware(_Guard, view=view, token=token)
    return Starlette(routes=routes, middleware=[guard], exception_handlers={404: _not_found, 405: _not_allowed})


class _Guard:
    """Lets a request through if it may do what it asks."""

    def __init__(self, app: ASGIApp, view: BrokerView, token: Callable[[], str | None]) -> None:
        self._app = app
        self._view = view
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        path = request.scope["path"]
        if path == "/health" or (path == "/metrics" and self._view.config.metrics.public):
            return None
        token = self._token()
        if token is not None:
            given = request.headers.get("authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return None
            return _error(401, "a bearer token is required", {"WWW-Authenticate": "Bearer"})
        if "origin" in request.headers or not is_loopback_name(request.headers.get("host")):
            return _error(403, "without a token only requests from this machine to a loopback name are allowed")
        return None


class _Handlers:
    def __init__(self, view: BrokerView) -> None:
        self._view = view
        self._registry = make_registry(view)

    async def health(self, request: Request) -> Response:
        reason = self._view.unwell()
        return _json({"status": "ok"}) if reason is None else _json({"status": reason}, 503)

    async def metrics(self, request: Request) -> Response:
        return Response(metrics_text(self._registry), headers={"content-type": CONTENT_TYPE})

    async def broker(self, request: Request) -> Response:
        view = self._view
        return _json(
            {
                "name": view.config.broker.name,
                "version": __version__,
                "started_at": view.started_at,
                "listeners": view.listeners,
                "counts": dict(view.counts()),
                "gauges": dict(view.gauges()),
            }
        )

    async def config(self, request: Request) -> Response:
        return _json(msgspec.to_builtins(self._view.config))

    async def clients(self, request: Request) -> Response:
        return self._sessions(request, connected=True)

    async def sessions(self, request: Request) -> Response:
        return self._sessions(request, connected=False)

    def _sessions(self, request: Request, *, connected: bool) -> Response:
        page = _page(request)
        if isinstance(page, Response):
            return page
        after, limit = page
        found = []
        for client_id in _following(self._view.client_ids(), after, None if connected else limit):
            client = self._view.client(client_id)
            if client is not None and (client.connected or not connected):
                found.append(client)
                if len(found) == limit:
                    break
        return _json({"items": found, "next": found[-1].client_id if len(found) == limit else None})

    async def session(self, request: Request) -> Response:
        client_id = request.path_params["client_id"]
        client = self._view.client(client_id)
        if client is None:
            return _error(404, "no such session")
        return _json({"client": client, "subscriptions": list(islice(self._view.subscriptions(client_id), PAGE_MAX))})

    async def kick(self, request: Request) -> Response:
        discard = request.query_params.get("discard", "false")
        if discard not in ("true", "false"):
            return _error(400, "discard must be true or false")
        if not self._view.kick(request.path_params["client_id"], discard=discard == "true"):
            return _error(404, "no such session")
        return Response(status_code=204)

    async def subscriptions(self, request: Request) -> Response:
        page = _page(request)
        if isinstance(page, Response):
            return page
        after, limit = page
        found: list[SubscriptionView] = []
        client_ids = _following(self._view.client_ids(), after, limit)
        for position, client_id in enumerate(client_ids, 1):
            found.extend(islice(self._view.subscriptions(client_id), PAGE_MAX))
            if len(found) >= PAGE_MAX or position == limit:
                return _json({"items": found, "next": client_id})
        return _json({"items": found, "next": None})

    async def trace(self, request: Request) -> Response:
        page = _page(request)
        if isinstance(page, Response):
            return page
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) < 16):
            return _error(400, "since must be 0 or the `next` of the previous answer")
        records, following, missed = self._view.trace(int(since), page[1])
        return _json({"items": [record_fields(one) for one in records], "next": following, "missed": missed})


def _following(client_ids: Iterable[str], after: str | None, limit: int | None) -> list[str]:
    """The next ids in order; a limit spares sorting them all."""
    rest = (one for one in client_ids if after is None or one > after)
    return sorted(rest) if limit is None else nsmallest(limit, rest)


def _page(request: Request) -> tuple[str | None, int] | Response:
    text = request.query_params.get("limit", str(PAGE_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= PAGE_MAX):
        return _error(400, f"limit must be between 1 and {PAGE_MAX}")
    return request.query_params.get("after"), int(text)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode({"error": text}), status, headers, media_type="application/json")


async def _not_found(_request: Request, _cause: Exception) -> Response:
    return _error(404, "not found")


async def _not_allowed(_request: Request, _cause: Exception) -> Response:
    return _error(405, "method not allowed")
