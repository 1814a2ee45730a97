"""`geomq peers` on live brokers: redraw areas while clients talk, look before changing, refuse in one line."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.broker.federated import configs, federation, until
from tests.broker.peers.test_membership import Stream, membership, settled, with_admin
from tests.probe import Probe

from geomq.broker.server import Broker
from geomq.cli import main
from geomq.client import Client
from geomq.geo import Location
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode

pytestmark = pytest.mark.anyio

WEST, EAST = "POLYGON((-180 -90, -30 -90, -30 90, -180 90, -180 -90))", "POLYGON((5 -90, 180 -90, 180 90, 5 90, 5 -90))"
MIDDLE = "POLYGON((-30 -90, 5 -90, 5 90, -30 90, -30 -90))"
ROUND = {"columbus": WEST, "frankfurt": EAST, "paris": MIDDLE}
SWAPPED = {"columbus": WEST, "frankfurt": MIDDLE, "paris": EAST}


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.routing.federation.live_editions.PAUSE_MS", 300.0)


async def peers(broker: Broker, *words: str) -> tuple[int, str]:
    """The command's exit code and what it says."""
    admin = f"http://127.0.0.1:{broker.admin_port}"
    result = await asyncio.to_thread(CliRunner().invoke, main, ["peers", "--admin", admin, *words])
    return result.exit_code, result.output


def file_of(folder: Path, areas: object) -> str:
    path = folder / "areas.json"
    path.write_text(areas if isinstance(areas, str) else json.dumps(areas))
    return str(path)


@pytest.mark.parametrize("strategy", ["disgb_events", "disgb_subscriptions", "adaptive"])
async def test_areas_become_other_polygons_while_clients_talk(strategy: str, tmp_path: Path) -> None:
    async with federation(with_admin(configs(strategy, brokers=3))) as brokers, AsyncExitStack() as stack:
        stream = Stream()
        await stream.start(stack, brokers["paris"], brokers["columbus"], "s")
        near = await stack.enter_async_context(
            Client("127.0.0.1", brokers["paris"].port, client_id="near", at=(48.9, 2.4))
        )
        await near.subscribe("fenced", within="geo:48.9,2.4;u=100000", qos=1)
        writer = await stack.enter_async_context(
            Client("127.0.0.1", brokers["columbus"].port, client_id="w", at=(48.8, 2.3))
        )
        for number, areas in enumerate((ROUND, SWAPPED), start=1):
            file = file_of(tmp_path, areas)
            code, said = await peers(brokers["columbus"], "areas", "given", "--file", file, "--dry-run")
            assert (code, f"Edition {number} would be in force: 3 brokers" in said) == (0, True), said
            assert "km2 from" in said
            assert membership(brokers["columbus"]).status().edition.number == number - 1
            code, said = await peers(brokers["columbus"], "areas", "given", "--file", file)
            assert (code, f"Edition {number} is in force" in said) == (0, True), said
            await until(lambda number=number: settled(*brokers.values(), number=number), seconds=30)  # type: ignore[misc]
            owners = {broker.core.node.strategy.federation.owner(Location(48.9, 2.4)) for broker in brokers.values()}
            assert owners == {"paris" if areas is ROUND else "frankfurt"}
            _, listed = await peers(brokers["frankfurt"], "list")
            assert f"areas given; edition {number} by columbus" in listed
            await writer.publish("fenced", str(number).encode(), to="geo:48.9,2.4;u=50000", qos=1)
            assert bytes((await anext(aiter(near))).payload) == str(number).encode()
        await stream.check()
        sent = Properties(user_properties=(("geo-roam", "1"), ("geo-location", "48.9,2.4")))
        probe, connack = await Probe.connect(brokers["paris"].port, Connect("roamer", properties=sent))
        assert connack.reason == ReasonCode.USE_ANOTHER_SERVER
        assert connack.properties.server_reference == f"127.0.0.1:{brokers['frankfurt'].port}"
        await probe.drop()


async def test_bad_input_is_one_clear_line_and_changes_nothing(tmp_path: Path) -> None:
    overlapping = {**ROUND, "paris": WEST}
    given = ("areas", "given", "--file")
    async with federation(with_admin(configs("disgb_events", brokers=3))) as brokers:
        columbus = brokers["columbus"]
        for words, complaint in [
            ((*given, file_of(tmp_path, overlapping)), "overlap"),
            (("areas", "given"), "--file is required by 'areas given' and not allowed otherwise"),
            (("areas", "grid"), "--degrees is required by 'areas grid' and not allowed otherwise"),
            (("areas", "nearest", "--degrees", "6"), "--degrees is required by 'areas grid' and not allowed otherwise"),
            (("areas", "grid", "--degrees", "7"), "divides 90"),
            ((*given, str(tmp_path / "missing")), "No such file"),
            (("add", "rome", "nowhere", "41.9,12.5"), "ADDRESS 'nowhere' is not of the form host:port"),
            (("add", "rome", "rome:123456", "41.9,12.5"), "is not of the form host:port"),
            (("add", "rome", "127.0.0.1:1", "91,0"), "latitude"),
            (("remove", "nobody"), "no broker 'nobody'"),
            (("strategy", "carrier_pigeon"), "carrier_pigeon"),
            (("strategy", "mesh", "-o", "announce_ms"), "KEY=VALUE"),
            (("strategy", "mesh", "-o", "announce_ms=-1"), "announce_ms"),
        ]:
            code, said = await peers(columbus, *words)
            assert (code, said.count("\n"), complaint in said) == (2, 1, True), (words, said)
        for text in ("{", '{"paris": 3}', '["x"]', '{"paris": "POLYGON((0 0))"}', "\0"):
            code, said = await peers(columbus, *given, file_of(tmp_path, text))
            assert (code, said.count("\n")) == (2, 1), (text, said)
        assert (membership(columbus).status().edition.number, membership(columbus).status().change) == (0, None)


async def test_a_change_that_takes_long_says_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.cli.peers.SILENT_S", 0.0)
    configured = with_admin(configs("disgb_events", brokers=2))
    async with federation(configured) as brokers:
        await brokers["frankfurt"].stop()
        command = asyncio.create_task(peers(brokers["columbus"], "strategy", "dht"))
        await until(lambda: membership(brokers["columbus"]).status().change is not None)
        await asyncio.sleep(0.5)
        async with Broker(configured["frankfurt"]):
            code, said = await command
        assert code == 0
        assert said.startswith("A change is in progress")
        assert said.splitlines()[-1].startswith("Edition 1 is in force")


async def test_a_change_nobody_waits_for_is_on_its_way() -> None:
    async with federation(with_admin(configs("disgb_events", brokers=2))) as brokers:
        await brokers["frankfurt"].stop()
        code, said = await peers(brokers["columbus"], "strategy", "dht", "--no-wait")
        assert (code, said) == (0, "Edition 1 is in progress: 2 brokers, dht.\n")


async def test_one_broker_is_one_broker() -> None:
    async with federation(with_admin(configs("single", brokers=1))) as brokers:
        _, said = await peers(brokers["columbus"], "list")
        assert said.startswith("1 broker, strategy single")


def test_no_broker_there_is_one_clear_line() -> None:
    result = CliRunner().invoke(main, ["peers", "--admin", "http://127.0.0.1:9", "list"])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "cannot reach an admin API at http://127.0.0.1:9" in result.output


def test_brokers_are_listed_with_their_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-broker-with-a-name-that-is-longer-than-others"
    here = {"name": "rome", "address": "rome.example:1884", "location": [41.9, 12.5], "connected": True}
    there = here | {"name": name, "address": None, "location": None, "connected": False}
    found = {
        "me": "rome",
        "brokers": [here | {"latency_ms": None}, there | {"latency_ms": None}],
        "strategy": "dht",
        "areas": {"kind": "nearest"},
        "edition": {"number": 0},
        "change": None,
    }
    monkeypatch.setattr("geomq.cli.peers.Admin.ask", lambda *_: found)
    listed = CliRunner().invoke(main, ["peers", "list"]).stdout.splitlines()
    assert [line.split() for line in listed[3:]] == [
        ["rome", "rome.example:1884", "41.9,12.5", "this", "one"],
        [name, "-", "nowhere", "not", "connected"],
    ]
    assert listed[3].index("rome.example") == listed[4].index(" - ") + 1
