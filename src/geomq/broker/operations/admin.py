"""The admin API: health, metrics, clients, sessions, subscriptions, the trace, kicking. JSON over HTTP.

`endpoints` are all it has, and `/openapi.json` describes them. Only translates between HTTP and a BrokerView. Whoever
has the token may do everything; without a token only programs on this machine may, and no web page (a browser's request
names the page's origin or host).
"""

import hmac
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from geomq import __version__
from geomq.broker.config.settings import Config
from geomq.broker.operations.admin_endpoints import (
    AFTER,
    LIMIT,
    PAGE_DEFAULT,
    PAGE_MAX,
    Endpoint,
    Health,
    Parameter,
    Refusal,
    json_answer,
    openapi,
    refusal,
    routes_of,
)
from geomq.broker.operations.admin_federation import federation_endpoints
from geomq.broker.operations.admin_view import BrokerView, ClientView, SubscriptionView
from geomq.broker.operations.metrics import CONTENT_TYPE, make_registry, metrics_text
from geomq.broker.security.own_names import is_loopback_name
from geomq.routing.trace.records import record_fields

DISCARD: Final = Parameter("discard", "Forget its session too.", {"type": "boolean", "default": False})
SINCE_MAX: Final = 10**15 - 1
SINCE: Final = Parameter(
    "since", "The `next` of the answer before.", {"type": "integer", "minimum": 0, "maximum": SINCE_MAX}
)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The broker, its listeners (kind, host, port), totals since the start and current numbers."""

    name: str
    version: str
    started_at: float
    listeners: list[list[str | int]]
    counts: dict[str, int]
    gauges: dict[str, float]


class SessionPage(msgspec.Struct, frozen=True):
    items: list[ClientView]
    next: str | None


class SessionAnswer(msgspec.Struct, frozen=True):
    client: ClientView
    subscriptions: list[SubscriptionView]


class SubscriptionPage(msgspec.Struct, frozen=True):
    items: list[SubscriptionView]
    next: str | None


class TracePage(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]
    next: int
    missed: int


def make_app(view: BrokerView, token: Callable[[], str | None]) -> Starlette:
    """The ASGI application; `token` is asked at every request, so that a reload can change it."""
    guard = Middleware(_Guard, view=view, token=token)
    return Starlette(
        routes=routes_of(endpoints(view)),
        middleware=[guard],
        exception_handlers={404: _not_found, 405: _not_allowed, ClientDisconnect: _gone},
    )


def endpoints(view: BrokerView) -> list[Endpoint]:
    """All that the admin API has."""
    to, sessions, subscriptions = _Handlers(view), {200: SessionPage}, {200: SubscriptionPage}
    one, pages = "/api/v1/sessions/{client_id:path}", (LIMIT, AFTER)
    found = [
        Endpoint("GET /health", "Whether the broker is well.", to.health, {200: Health, 503: Health}, open=True),
        Endpoint("GET /metrics", "Prometheus text.", to.metrics, {200: str}),
        Endpoint("GET /api/v1/broker", "Name, totals, current numbers.", to.broker, {200: About}),
        Endpoint("GET /api/v1/config", "The settings in effect.", to.config, {200: Config}),
        Endpoint("GET /api/v1/clients", "Connected clients.", to.clients, sessions, pages),
        Endpoint("GET /api/v1/sessions", "Sessions, connected or not.", to.sessions, sessions, pages),
        Endpoint(f"GET {one}", "One session.", to.session, {200: SessionAnswer, 404: Refusal}),
        Endpoint(f"DELETE {one}", "Disconnect a client.", to.kick, {204: None, 404: Refusal}, (DISCARD,)),
        Endpoint("GET /api/v1/subscriptions", "Subscriptions.", to.subscriptions, subscriptions, pages),
        Endpoint("GET /api/v1/trace", "The latest records.", to.trace, {200: TracePage}, (LIMIT, SINCE)),
        *federation_endpoints(view),
    ]

    async def describe(_: Request) -> Response:
        return json_answer(openapi(found))

    found.append(Endpoint("GET /openapi.json", "This description.", describe, {200: dict[str, Any]}))
    return found


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
            return refusal(401, "a bearer token is required", {"WWW-Authenticate": "Bearer"})
        if "origin" in request.headers or not is_loopback_name(request.headers.get("host")):
            return refusal(403, "without a token only requests from this machine to a loopback name are allowed")
        return None


class _Handlers:
    def __init__(self, view: BrokerView) -> None:
        self._view = view
        self._registry = make_registry(view)

    async def health(self, request: Request) -> Response:
        reason = self._view.unwell()
        return json_answer(Health("ok")) if reason is None else json_answer(Health(reason), 503)

    async def metrics(self, request: Request) -> Response:
        return Response(metrics_text(self._registry), headers={"content-type": CONTENT_TYPE})

    async def broker(self, request: Request) -> Response:
        view = self._view
        return json_answer(
            About(
                name=view.config.broker.name,
                version=__version__,
                started_at=view.started_at,
                listeners=[list(each) for each in view.listeners],
                counts=dict(view.counts()),
                gauges=dict(view.gauges()),
            )
        )

    async def config(self, request: Request) -> Response:
        return json_answer(self._view.config)

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
        return json_answer(SessionPage(found, found[-1].client_id if len(found) == limit else None))

    async def session(self, request: Request) -> Response:
        client_id = request.path_params["client_id"]
        client = self._view.client(client_id)
        if client is None:
            return refusal(404, "no such session")
        return json_answer(SessionAnswer(client, list(islice(self._view.subscriptions(client_id), PAGE_MAX))))

    async def kick(self, request: Request) -> Response:
        discard = request.query_params.get("discard", "false")
        if discard not in ("true", "false"):
            return refusal(400, "discard must be true or false")
        if not self._view.kick(request.path_params["client_id"], discard=discard == "true"):
            return refusal(404, "no such session")
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
                return json_answer(SubscriptionPage(found, client_id))
        return json_answer(SubscriptionPage(found, None))

    async def trace(self, request: Request) -> Response:
        page = _page(request)
        if isinstance(page, Response):
            return page
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) < 16):
            return refusal(400, "since must be 0 or the `next` of the previous answer")
        records, following, missed = self._view.trace(int(since), page[1])
        return json_answer(TracePage([record_fields(one) for one in records], following, missed))


def _following(client_ids: Iterable[str], after: str | None, limit: int | None) -> list[str]:
    """The next ids in order; a limit spares sorting them all."""
    rest = (one for one in client_ids if after is None or one > after)
    return sorted(rest) if limit is None else nsmallest(limit, rest)


def _page(request: Request) -> tuple[str | None, int] | Response:
    text = request.query_params.get("limit", str(PAGE_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= PAGE_MAX):
        return refusal(400, f"limit must be between 1 and {PAGE_MAX}")
    return request.query_params.get("after"), int(text)


async def _not_found(_request: Request, _cause: Exception) -> Response:
    return refusal(404, "not found")


async def _gone(_request: Request, _cause: Exception) -> Response:
    return refusal(400, "the request was not sent to its end")


async def _not_allowed(_request: Request, cause: Exception) -> Response:
    return refusal(405, "method not allowed", getattr(cause, "headers", None))
