"""Why an event went where it went, asked from the page."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.dashboard.pages import dashboard
from tests.dashboard.test_commands import CIRCLE, running

from geomq.cli.why import why
from geomq.client import Client
from geomq.dashboard.recorded_files import read_views
from geomq.dashboard.why import case_json
from geomq.pipeline.simulation import Scenario, simulate_one
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


async def test_a_replay_knows_the_reasons_that_geomq_why_finds_in_its_files(tmp_path: Path) -> None:
    trace = tmp_path / "played"
    scenario = Scenario(brokers=9, clients=60, seconds=30, topics=5, preset="steady", seed=1)
    simulate_one(scenario, "disgb_events", trace=trace)
    (view,) = read_views(trace)
    event_id = next(event["id"] for frame in json.loads(view.body)["frames"] for event in frame["events"])
    printed = CliRunner().invoke(why, ["--json", "--event", event_id, "--client", "c1", str(trace)])
    expected = json.loads(printed.output)
    async with dashboard(views=[view]) as page:
        told = (await page.ask(f"/api/why/{event_id}?view=played&client=c1")).body
        assert [step["step"] for step in told["steps"]] == [step["step"] for step in expected["steps"]]
        assert told["reached"] == expected["reached"]
        assert told["clients"]["c1"]["text"] == expected["clients"]["c1"]["reason"]
        assert (await page.ask("/api/why/nobody:1:1?view=played")).status == 404
        assert (await page.ask(f"/api/why/{event_id}?view=other")).status == 400
