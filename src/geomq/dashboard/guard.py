"""Stands before every request of the dashboard: who may ask, from which page, how often and how much.

Refuses first and explains in one line. What the page may load is said in headers on every answer.
"""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geomq.broker.security.own_names import is_loopback_name
from geomq.dashboard.access import Access

COOKIE = "geomq-session"
BODY_BYTES_MAX = 131_072
OPEN_PATHS = frozenset({"/api/session", "/api/login", "/api/logout"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """ASGI middleware; what it lets through is allowed."""

    def __init__(self, app: ASGIApp, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        refusal = self._refusal(HTTPConnection(scope))
        if scope["type"] == "websocket" and refusal is not None:
            await _refuse_websocket(scope, receive, send, refusal)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", _cache_control(scope["path"]))
            await send(message)

        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        if not self._access.login_required and not is_loopback_name(request.headers.get("host")):
            return error(403, "without a token the dashboard must be opened by a loopback name")
        path = request.scope["path"]
        if not path.startswith("/api/"):
            return None
        address = request.client.host if request.client is not None else ""
        if not self._access.requests.take(address, now=self._clock()):
            return error(429, "too many requests; wait a second")
        if not _same_origin(request):
            return error(403, "cross-site requests are refused")
        posted = request.scope["type"] == "http" and request.scope["method"] != "GET"
        if posted:
            too_much = _unwanted(request)
            if too_much is not None:
                return too_much
        if path in OPEN_PATHS:
            return None
        if not self._access.knows(request.cookies.get(COOKIE), now=self._clock()):
            return error(401, "log in first")
        if posted and not self._access.admin:
            return error(403, "this dashboard is read-only; it was started without admin rights")
        return None


def error(status: int, text: str) -> Response:
    """One line for the page to show."""
    return Response(msgspec.json.encode({"error": text}), status, media_type="application/json")


def _same_origin(request: HTTPConnection) -> bool:
    """Whether no browser says that another site's page asks."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc == request.headers.get("host")


def _unwanted(request: HTTPConnection) -> Response | None:
    """A request that would change something needs the header only our page sends, and a small body."""
    if request.headers.get("x-geomq") != "1":
        return error(403, "the header X-GeoMQ: 1 is missing")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        return error(413, f"a request body is at most {BODY_BYTES_MAX} bytes")
    return None


def _cache_control(path: str) -> str:
    if path.startswith("/api/"):
        return "no-store"
    return "public, max-age=31536000, immutable" if path.startswith("/assets/") else "no-cache"


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send, refusal: Response) -> None:
    """Answer the handshake with a status where the server can, else close at once."""
    await receive()
    if "websocket.http.response" in scope.get("extensions", {}):
        head = {"type": "websocket.http.response.start", "status": refusal.status_code, "headers": refusal.raw_headers}
        await send(head)
        await send({"type": "websocket.http.response.body", "body": refusal.body})
    else:
        await send({"type": "websocket.close", "code": 1008})
