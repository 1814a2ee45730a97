"""The description of the admin API names what there is, and answers are as it says."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from starlette.routing import Route
from tests.broker.operations.test_admin import TOKEN, Ask, FakeBroker, serve
from tests.fuzz.world import ADMIN, World

from geomq.broker.operations.admin import endpoints, make_app
from geomq.broker.operations.admin_endpoints import PAGE_MAX, openapi

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "admin.md"


def described() -> dict[str, Any]:
    return openapi(endpoints(FakeBroker()))


def operations(description: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods}


def test_the_description_names_exactly_the_routes_there_are() -> None:
    routes = set()
    for route in make_app(FakeBroker(), lambda: None).routes:
        assert isinstance(route, Route)
        path = route.path.replace(":path", "")
        routes |= {f"{method} {path}" for method in route.methods or () if method != "HEAD"}
    assert operations(described()) == routes


def test_the_reference_page_names_exactly_the_same() -> None:
    rows = re.findall(r"^\| `(\w+ [^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    named = {row.replace("<client id>", "{client_id}").replace("<name>", "{name}") for row in rows}
    assert named == operations(described())


def test_the_description_is_served_to_those_who_may_use_the_api() -> None:
    def use(ask: Ask) -> None:
        assert ask("/openapi.json")[0] == 401
        served = json.loads(json.dumps(described()))
        assert ask("/openapi.json", Authorization=f"Bearer {TOKEN}") == (200, served)

    serve(FakeBroker(), TOKEN, use)


def test_the_description_says_what_a_request_may_contain() -> None:
    paths, schemas = described()["paths"], described()["components"]["schemas"]
    limit, _ = paths["/api/v1/sessions"]["get"]["parameters"]
    assert limit["schema"]["maximum"] == PAGE_MAX
    assert set(paths["/api/v1/sessions/{client_id}"]["delete"]["responses"]) == {"204", "400", "401", "403", "404"}
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}
    body = paths["/api/v1/federation/peers"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/NewPeer"}
    assert schemas["NewPeer"]["required"] == ["name", "address"]


def test_what_is_answered_is_of_the_type_that_is_described() -> None:
    world = World("disgb_events")
    asked = [each for each in endpoints(FakeBroker()) if each.method == "GET" and "{" not in each.path]
    for endpoint in asked:
        answer = world.send(ADMIN, [f"GET {endpoint.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()])
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), endpoint.path
        if endpoint.answers[200] is not str:
            msgspec.json.decode(body, type=endpoint.answers[200])
    assert len(asked) == 10


def test_a_method_that_is_not_there_is_told_which_are() -> None:
    answer = World().send(ADMIN, [b"TRACE /api/v1/sessions/a HTTP/1.1\r\nHost: localhost\r\n\r\n"])
    assert answer.startswith(b"HTTP/1.1 405 ")
    (allowed,) = re.findall(rb"allow: (.*)\r\n", answer)
    assert set(allowed.split(b", ")) == {b"GET", b"HEAD", b"DELETE"}
