"""Why an event went where it went, asked from the page."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.dashboard.pages import dashboard, message
from tests.dashboard.test_commands import CIRCLE, running

from geomq.cli.why import why
from geomq.client import Client
from geomq.dashboard.recorded_files import read_views
from geomq.dashboard.why import Routed, case_json
from geomq.pipeline.simulation import Scenario, simulate_one
from geomq.routing.core.model import BrokerId, EventId
from geomq.routing.core.topology import Federation
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
        assert told["summary"] == "1 of 2 who subscribe to its topic got it; 1 outside the event's fence."
        sent = [step["text"] for step in told["steps"] if step["step"] == "sent"]
        assert sorted(sent) == [f"sent to {name}: flooding asks every broker" for name in ("frankfurt", "paris")]
        assert all(broker["asked"] for broker in told["brokers"])
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
    told = case_json(case, ["x"], [], Routed(Federation.alone(BrokerId("a")), "single"))
    assert told["clients"]["x"]["verdict"] == "unexplained"
    assert told["brokers"] == []


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


async def test_an_event_that_nobody_got_says_why() -> None:
    async with running() as (page, ports), Client("127.0.0.1", ports["paris"], client_id="far", at=(0, 0)) as far:
        await far.subscribe("news/#")
        for topic, expected in (
            ("news/x", "Nobody got it. Of those who subscribe to its topic: 1 outside the event's fence."),
            ("other", "Nobody got it: nobody is known to subscribe to its topic."),
        ):
            event_id = (await page.post("/api/publish", {"broker": "paris", "topic": topic, "fence": CIRCLE})).body[
                "id"
            ]
            assert (await page.ask(f"/api/why/{event_id}")).body["summary"] == expected


async def test_who_subscribed_after_the_event_is_not_said_to_have_been_subscribed() -> None:
    async with (
        running() as (page, ports),
        page.live(),
        Client("127.0.0.1", ports["paris"], client_id="late", at=(48.88, 2.36)) as late,
    ):
        event_id = (await page.post("/api/publish", {"broker": "paris", "topic": "news/x"})).body["id"]
        await late.subscribe("news/#")
        told = (await page.ask(f"/api/why/{event_id}?client=late")).body
        assert told["clients"]["late"]["verdict"] == "no subscription"


async def test_a_client_that_moved_since_is_judged_by_where_it_was() -> None:
    async with (
        running() as (page, ports),
        Client("127.0.0.1", ports["paris"], client_id="far", at=(0, 0)) as far,
        page.live(),
    ):
        await far.subscribe("news/#")
        asked = {"broker": "paris", "topic": "news/x", "fence": CIRCLE}
        event_id = (await page.post("/api/publish", asked)).body["id"]
        await far.move(48.88, 2.36, qos=1)
        told = (await page.ask(f"/api/why/{event_id}?client=far")).body
        assert told["clients"]["far"]["verdict"] == "outside the event's fence"


async def test_an_event_is_explained_by_the_strategy_it_was_routed_by() -> None:
    async with running() as (page, _), page.live() as socket:
        asked = {"broker": "columbus", "topic": "news/x", "fence": CIRCLE}
        before = (await page.post("/api/publish", asked)).body["id"]
        assert (await page.post("/api/strategy", {"strategy": "disgb_events"})).status == 204
        while (await message(socket)).get("strategy") != "disgb_events":
            pass
        after = (await page.post("/api/publish", asked)).body["id"]
        flooded = (await page.ask(f"/api/why/{before}")).body
        assert {broker["text"] for broker in flooded["brokers"]} >= {"flooding asks every broker"}
        fenced = {
            one["broker"]: (one["asked"], one["text"]) for one in (await page.ask(f"/api/why/{after}")).body["brokers"]
        }
        assert fenced["paris"] == (True, "its area meets the event's fence")
        assert fenced["frankfurt"] == (False, "its area does not meet the event's fence")
