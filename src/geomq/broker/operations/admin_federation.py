"""The part of the admin API that shows and changes the federation. Translates between HTTP and `Membership`."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geomq.broker.operations.admin_view import BrokerView
from geomq.broker.peers.membership import Membership
from geomq.errors import ConfigError, GeomqError
from geomq.geo import make_location, parse_location
from geomq.routing.federation.changes import AddBroker, Change, RemoveBroker, SetAreas, SetStrategy
from geomq.routing.federation.description import BrokerEntry

BODY_BYTES_MAX = 1 << 22


class NewPeer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request to add a broker contains; `strategy` for a broker that was alone until now."""

    name: str
    address: str
    location: str | tuple[float, float] | None = None
    area: str | None = None
    strategy: str | None = None


def federation_routes(view: BrokerView) -> list[Route]:
    handlers = _Handlers(view)
    root = "/api/v1/federation"
    return [
        Route(root, handlers.show),
        Route(f"{root}/peers", handlers.add, methods=["POST"]),
        Route(f"{root}/peers/{{name}}", handlers.remove, methods=["DELETE"]),
        Route(f"{root}/areas", handlers.areas, methods=["PUT"]),
        Route(f"{root}/strategy", handlers.strategy, methods=["POST"]),
    ]


class _Handlers:
    def __init__(self, view: BrokerView) -> None:
        self._view = view

    async def show(self, request: Request) -> Response:
        return _json(self._view.membership.status())

    async def add(self, request: Request) -> Response:
        return await self._change(request, _added)

    async def remove(self, request: Request) -> Response:
        return await self._change(request, lambda _: RemoveBroker(request.path_params["name"]))

    async def areas(self, request: Request) -> Response:
        return await self._change(request, lambda body: msgspec.json.decode(body, type=SetAreas))

    async def strategy(self, request: Request) -> Response:
        return await self._change(request, lambda body: msgspec.json.decode(body, type=SetStrategy))

    async def _change(self, request: Request, read: Callable[[bytes], Change]) -> Response:
        dry_run = request.query_params.get("dry_run", "0")
        if dry_run not in ("0", "1", "false", "true"):
            return _error(400, "dry_run must be 0 or 1")
        try:
            return _json(_changed(self._view.membership, read(await _body(request)), dry_run=dry_run in ("1", "true")))
        except msgspec.MsgspecError as error:
            return _error(400, " ".join(str(error).replace("`", "").split()))
        except GeomqError as error:
            return _error(400, str(error))


def _changed(membership: Membership, change: Change, *, dry_run: bool) -> object:
    return membership.change(change, dry_run=dry_run)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise ConfigError(f"a request body is at most {BODY_BYTES_MAX} bytes")
    return body


def _added(body: bytes) -> AddBroker:
    peer = msgspec.json.decode(body, type=NewPeer)
    if peer.location is None:
        raise ConfigError(f"broker {peer.name[:80]} of the federation needs a location")
    place = parse_location(peer.location) if isinstance(peer.location, str) else make_location(*peer.location)
    entry = msgspec.convert(
        {"name": peer.name, "location": tuple(place), "address": peer.address, "area": peer.area}, BrokerEntry
    )
    return AddBroker(entry, strategy=peer.strategy)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _error(status: int, text: str) -> Response:
    return Response(msgspec.json.encode({"error": text}), status, media_type="application/json")
