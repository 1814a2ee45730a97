"""What an endpoint of the admin API is, said once: its route and its part of the OpenAPI description are made of it.

Owns no endpoint. What an endpoint takes and answers are types, so that the description and the bytes cannot differ.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geomq import __version__

PAGE_DEFAULT, PAGE_MAX = 100, 1_000
Answering = Callable[[Request], Awaitable[Response]]
WHOLE_REST: Final = ":path"
"""In a path: the parameter may hold slashes."""
_COMPONENTS: Final = "#/components/schemas/{name}"


class Health(msgspec.Struct, frozen=True):
    """Whether the broker serves as it should, or why not."""

    status: str


class Refusal(msgspec.Struct, frozen=True):
    """Why not, in one line."""

    error: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of the query, with its JSON schema."""

    name: str
    about: str
    schema: Mapping[str, Any]


LIMIT: Final = Parameter(
    "limit", "How many.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT}
)
AFTER: Final = Parameter("after", "The `next` of the page before.", {"type": "string"})
DRY_RUN: Final = Parameter("dry_run", "Only say what would be.", {"enum": ["0", "1", "false", "true"], "default": "0"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path. `answers` says by status which type it answers with; `str` is plain text, None nothing."""

    request: str
    about: str
    answer: Answering
    answers: Mapping[int, Any]
    query: tuple[Parameter, ...] = ()
    body: Any = None
    open: bool = False
    """Whether everybody may ask."""

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.request.partition(" ")[2]

    @property
    def types(self) -> list[Any]:
        """What its description refers to."""
        return [kind for kind in (self.body, *self.answers.values(), Refusal) if kind not in (None, str)]


def routes_of(endpoints: Iterable[Endpoint]) -> list[Route]:
    """One route for each path, so that a method which is not there is told all that are."""
    found: dict[str, dict[str, Answering]] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.path, {})[endpoint.method] = endpoint.answer
    return [Route(path, _by_method(answers), methods=[*answers]) for path, answers in found.items()]


def _by_method(answers: Mapping[str, Answering]) -> Answering:
    async def answer(request: Request) -> Response:
        return await answers["GET" if request.method == "HEAD" else request.method](request)

    return answer


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The description of all endpoints, as OpenAPI 3.1."""
    endpoints = tuple(endpoints)
    kinds = dict.fromkeys(kind for endpoint in endpoints for kind in endpoint.types)
    schemas, components = msgspec.json.schema_components(tuple(kinds), ref_template=_COMPONENTS)
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = endpoint.path.replace(WHOLE_REST, "")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "GeoMQ admin API", "version": __version__},
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    answers: dict[int, Any] = dict(endpoint.answers)
    if endpoint.query or endpoint.body is not None:
        answers[400] = Refusal
    if not endpoint.open:
        answers |= {401: Refusal, 403: Refusal}
    made: dict[str, Any] = {
        "summary": endpoint.about,
        "parameters": [*map(_path_parameter, _names(endpoint.path)), *map(_query_parameter, endpoint.query)],
        "responses": {str(status): _answer(status, kind, schema_of) for status, kind in sorted(answers.items())},
    }
    if endpoint.body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[endpoint.body]}},
        }
    return made


def _names(path: str) -> list[str]:
    return [part.strip("{}").removesuffix(WHOLE_REST) for part in path.split("/") if part.startswith("{")]


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    return {"name": parameter.name, "in": "query", "description": parameter.about, "schema": dict(parameter.schema)}


def _answer(status: int, kind: Any, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": {200: "The answer.", 204: "Done."}.get(status, "Why not.")}
    if kind is str:
        made["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif kind is not None:
        made["content"] = {"application/json": {"schema": schema_of[kind]}}
    return made


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(Refusal(text)), status, headers, media_type="application/json")
