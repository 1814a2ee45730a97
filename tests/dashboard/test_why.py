"""Why an event went where it went, asked from the page."""

import pytest
from tests.dashboard.pages import dashboard
from tests.dashboard.test_commands import CIRCLE, running

from geomq.client import Client
from geomq.dashboard.why import case_json
from geomq.routing.core.model import BrokerId, EventId
from geomq.workload.traffic.verdict import Case

pytestmark = pytest.mark.anyio


async def test_the_way_of_an_event_and_why_somebody_did_not_get_it() -> None:
    async with (
        running() as (page, ports),
        Client("127.0.0.1", ports["paris"], client_id="near", at=(48.88, 2.36)) as near,
        Client("127.0.0.1", ports["frankfurt"], client_id="far", at=(50.1, 8.6)) as far,
    ):
        await near.subscribe("news/#")
        await far.subscribe("news/#")
        asked = {"broker": "columbus", "topic": "news/here", "payload": "hello", "qos": 1, "fence": CIRCLE}
        event_id = (await page.post("/api/publish", asked)).body["id"]
        await anext(aiter(near.messages))
        told = (await page.ask(f"/api/why/{event_id}?client=near&client=far&client=nobody")).body
        assert told["steps"][0]["step"] == "published"
        assert {"broker": "paris", "client": "near"}.items() <= told["steps"][-1].items()
        assert told["reached"] == ["near"]
        verdicts = {client: answer["verdict"] for client, answer in told["clients"].items()}
        assert verdicts == {"near": "delivered", "far": "outside the event's fence", "nobody": "unknown client"}


async def test_questions_nobody_can_answer_are_refused() -> None:
    async with running() as (page, _):
        assert (await page.ask("/api/why/paris:1:999")).body == {"error": "no broker has records of this event"}
        assert (await page.ask("/api/why/nonsense")).status == 400
        many = "&".join(f"client={number}" for number in range(21))
        assert (await page.ask(f"/api/why/paris:1:1?{many}")).status == 400
    async with dashboard() as page:
        assert (await page.ask("/api/why/paris:1:1")).status == 400


def test_an_event_nobody_knows_has_no_steps() -> None:
    case = Case(EventId(BrokerId("a"), 1, 1), [], ["a"])
    assert case_json(case, ["x"])["clients"]["x"]["verdict"] == "unexplained"
