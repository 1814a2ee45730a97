"""The part of the admin API that shows and changes the federation. Translates between HTTP and `Membership`."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from geomq.broker.operations.admin_endpoints import DRY_RUN, Endpoint, json_answer, refusal
from geomq.broker.operations.admin_view import BrokerView
from geomq.broker.peers.changes import ChangeView
from geomq.broker.peers.membership import FederationView
from geomq.errors import UNREADABLE, ConfigError, GeomqError
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


def federation_endpoints(view: BrokerView) -> list[Endpoint]:
    to, root = _Handlers(view), "/api/v1/federation"
    answers, query = {200: ChangeView}, (DRY_RUN,)
    return [
        Endpoint(f"GET {root}", "Brokers, areas, strategy, the change under way.", to.show, {200: FederationView}),
        Endpoint(f"POST {root}/peers", "Add a broker.", to.add, answers, query, NewPeer),
        Endpoint(f"DELETE {root}/peers/{{name}}", "Remove a broker.", to.remove, answers, query),
        Endpoint(f"PUT {root}/areas", "Redraw the areas.", to.areas, answers, query, SetAreas),
        Endpoint(f"POST {root}/strategy", "Change the strategy.", to.strategy, answers, query, SetStrategy),
    ]


class _Handlers:
    def __init__(self, view: BrokerView) -> None:
        self._view = view

    async def show(self, request: Request) -> Response:
        return json_answer(self._view.membership.status())

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
            return refusal(400, "dry_run must be 0 or 1")
        try:
            change = _readable(read, await _body(request))
            return json_answer(self._view.membership.change(change, dry_run=dry_run in ("1", "true")))
        except GeomqError as error:
            return refusal(400, str(error))


def _readable(read: Callable[[bytes], Change], body: bytes) -> Change:
    try:
        return read(body)
    except UNREADABLE as error:
        raise ConfigError(" ".join(str(error).replace("`", "").split())) from None


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
