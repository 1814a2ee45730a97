"""Brokers join, leave and change their ways while real clients talk."""

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.broker.federated import SITES, admitting, configs, federation, until

from geomq.broker.config import settings
from geomq.broker.config.settings import Config
from geomq.broker.local_federation import CLOUD, Site, free_ports, local_configs
from geomq.broker.peers.membership import Membership
from geomq.broker.server import Broker
from geomq.cli import main
from geomq.cli.peers import Admin
from geomq.client import Client
from geomq.errors import ConfigError, UsageError
from geomq.geo import Location
from geomq.routing.federation.changes import AddBroker, RemoveBroker, SetStrategy
from geomq.routing.federation.description import BrokerEntry
from geomq.routing.strategies.registry import STRATEGIES

pytestmark = pytest.mark.anyio
FAST: dict[str, dict[str, Any]] = {"mesh": {"announce_ms": 100}}
STREAMING = [name for name in STRATEGIES if name not in ("single", "broadcast_groups")]


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.routing.federation.live_editions.PAUSE_MS", 300.0)


def newcomer(seed: Config, **federation: Any) -> Config:
    """A broker in Rome that knows nobody but a seed."""
    (port,) = free_ports(1)
    section = {"port": port, "seed": f"127.0.0.1:{seed.federation.port}", **federation}
    return msgspec.structs.replace(
        seed,
        broker=msgspec.structs.replace(seed.broker, name="rome", location="41.9,12.5"),
        federation=msgspec.structs.replace(seed.federation, **section),
        peers=(),
    )


def membership(broker: Broker) -> Membership:
    assert broker.membership is not None
    return broker.membership


def settled(*brokers: Broker, number: int = 1) -> bool:
    """Whether all have come to an edition and no older routing is left."""
    views = [membership(broker).status() for broker in brokers]
    return all(view.edition.number >= number and view.change is None for view in views)


def reasons(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(str(getattr(record, "reason", "")) for record in caplog.records)


class Stream:
    """A publisher and a subscriber of numbered events of QoS 1, at two brokers."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.got: list[bytes] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._done = False

    async def start(self, stack: AsyncExitStack, source: Broker, target: Broker, name: str) -> None:
        reader = await stack.enter_async_context(Client("127.0.0.1", target.port, client_id=f"{name}-reader"))
        writer = await stack.enter_async_context(Client("127.0.0.1", source.port, client_id=f"{name}-writer"))
        await reader.subscribe(f"{name}/#", qos=1)
        self._tasks = [asyncio.create_task(self._read(reader))]
        await asyncio.sleep(0.5)
        self._tasks.append(asyncio.create_task(self._write(writer, name)))
        stack.push_async_callback(self.stop)

    async def _read(self, client: Client) -> None:
        async for message in client:
            self.got.append(bytes(message.payload))

    async def _write(self, client: Client, name: str) -> None:
        for number in count():
            if self._done:
                return
            await client.publish(f"{name}/{number % 7}", str(number).encode(), qos=1)
            self.sent.append(str(number).encode())
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def check(self) -> None:
        """Everything acknowledged arrives, once."""
        self._done = True
        await self._tasks.pop()
        sent = set(self.sent)
        with suppress(AssertionError):
            await until(lambda: sent <= set(self.got))
        assert sorted(sent - set(self.got)) == []
        assert len(self.got) == len(set(self.got))


@pytest.mark.parametrize("strategy", STREAMING)
async def test_a_broker_joins_by_a_seed_and_leaves_and_no_event_is_lost(strategy: str) -> None:
    configured = admitting(configs(strategy, FAST.get(strategy), brokers=3), "rome")
    async with federation(configured) as brokers, AsyncExitStack() as stack:
        stream = Stream()
        await stream.start(stack, brokers["paris"], brokers["columbus"], "s")
        rome = await stack.enter_async_context(Broker(newcomer(configured["frankfurt"])))
        everybody = (*brokers.values(), rome)
        await until(lambda: settled(*everybody), seconds=30)
        assert membership(brokers["paris"]).status().edition.origin == "frankfurt"
        assert all(broker.linked and len(membership(broker).addresses) == 3 for broker in everybody)
        assert membership(rome).status().strategy == strategy
        late = Stream()
        await late.start(stack, brokers["paris"], rome, "late")
        await asyncio.sleep(0.3)
        await late.check()
        membership(brokers["columbus"]).change(RemoveBroker("rome"))
        await until(lambda: settled(*everybody, number=2), seconds=30)
        assert membership(rome).addresses == {}
        await asyncio.sleep(0.2)
        await stream.check()


async def test_the_strategy_changes_for_all_brokers_under_load_and_no_event_is_lost() -> None:
    configured = local_configs(SITES[:3], "broadcast_groups")
    configured = {name: msgspec.structs.replace(config) for name, config in configured.items()}
    cloud = configured.pop(CLOUD)
    async with Broker(cloud), federation(configured) as brokers, AsyncExitStack() as stack:
        await until(lambda: all(broker.cloud is not None and broker.cloud.up for broker in brokers.values()))
        streams = [Stream(), Stream()]
        await streams[0].start(stack, brokers["paris"], brokers["columbus"], "a")
        await streams[1].start(stack, brokers["frankfurt"], brokers["paris"], "b")
        tour = ["flood_subscriptions", "dht", "broadcast_groups", "mesh", "georendezvous", "digests", "adaptive"]
        for number, strategy in enumerate(tour):
            at = brokers[list(brokers)[number % 3]]
            view = membership(at).change(SetStrategy(strategy, FAST.get(strategy, {})))
            assert view.changed
            await until(lambda n=number: settled(*brokers.values(), number=n + 1), seconds=30)  # type: ignore[misc]
            assert {membership(broker).status().strategy for broker in brokers.values()} == {strategy}
            assert (brokers["paris"].cloud is not None) == (strategy == "broadcast_groups")
        for stream in streams:
            await stream.check()


async def test_a_lone_broker_grows_into_a_federation() -> None:
    (port,) = free_ports(1)
    first = local_configs([Site("athens", Location(38.0, 23.7))], "adaptive")["athens"]
    first = msgspec.structs.replace(
        first, federation=msgspec.structs.replace(first.federation, port=port, admit=("rome",))
    )
    async with Broker(first) as athens, Broker(newcomer(first)) as rome:
        await until(lambda: settled(athens, rome) and rome.linked and len(membership(rome).addresses) == 1)
        stream = Stream()
        async with AsyncExitStack() as stack:
            await stream.start(stack, athens, rome, "s")
            await asyncio.sleep(0.2)
            await stream.check()


async def test_a_broker_is_refused_where_nobody_may_join(caplog: pytest.LogCaptureFixture) -> None:
    configured = configs("flood_events", brokers=2)
    async with federation(configured) as brokers, Broker(newcomer(configured["frankfurt"])) as rome:
        await until(lambda: "admit of this broker does not name rome" in reasons(caplog))
        assert membership(rome).addresses == {}
        assert membership(brokers["frankfurt"]).status().edition.number == 0


async def test_a_newcomer_without_a_place_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    configured = admitting(configs("flood_events", brokers=2), "rome")
    config = newcomer(configured["frankfurt"])
    nowhere = msgspec.structs.replace(config, broker=msgspec.structs.replace(config.broker, location=None))
    async with federation(configured), Broker(nowhere):
        await until(lambda: "needs a location" in reasons(caplog))
        assert "broker rome of the federation needs a location" in reasons(caplog)


async def test_one_removed_while_away_hears_of_it_when_it_returns() -> None:
    configured = configs("dht", brokers=3)
    async with federation(configured) as brokers:
        await brokers["paris"].stop()
        await until(lambda: len(brokers["columbus"].peering.connected) == 1)  # type: ignore[union-attr]
        membership(brokers["columbus"]).change(RemoveBroker("paris"))
        await until(lambda: settled(brokers["columbus"], brokers["frankfurt"]))
        async with Broker(configured["paris"]) as again:
            await until(lambda: membership(again).status().edition.number == 1)
            await until(lambda: membership(again).addresses == {})
            assert membership(again).status().change is None


async def test_a_restarted_broker_learns_what_changed_meanwhile() -> None:
    configured = configs("dht", brokers=3)
    async with federation(configured) as brokers:
        await brokers["paris"].stop()
        membership(brokers["columbus"]).change(SetStrategy("flood_events"))
        await asyncio.sleep(0.5)
        under_way = membership(brokers["columbus"]).status().change
        assert under_way is not None
        assert under_way.waiting_for == ["paris"]
        async with Broker(configured["paris"]) as again:
            await until(lambda: settled(brokers["columbus"], brokers["frankfurt"], again))
            assert membership(again).status().strategy == "flood_events"


async def test_a_strategy_that_needs_a_cloud_waits_for_the_broker_that_has_none() -> None:
    configured = local_configs(SITES[:2], "broadcast_groups")
    cloud = configured.pop(CLOUD)
    configured = {
        name: msgspec.structs.replace(config, routing=msgspec.structs.replace(config.routing, strategy="dht"))
        for name, config in configured.items()
    }
    cloudless = msgspec.structs.replace(configured["frankfurt"], cloud=type(cloud.cloud)())
    async with Broker(cloud), federation({**configured, "frankfurt": cloudless}) as brokers:
        with pytest.raises(ConfigError, match="address is needed"):
            membership(brokers["frankfurt"]).change(SetStrategy("broadcast_groups"))
        columbus = membership(brokers["columbus"])
        columbus.change(SetStrategy("broadcast_groups"))

        def problems() -> dict[str, str]:
            change = columbus.status().change
            return {} if change is None else change.problems

        await until(lambda: "frankfurt" in problems())
        assert "[cloud] address" in problems()["frankfurt"]
        columbus.change(SetStrategy("dht"))
        await until(lambda: settled(*brokers.values(), number=2))


def with_admin(configured: dict[str, Config]) -> dict[str, Config]:
    """Every broker with an admin API on a free port."""
    admin = settings.Admin(enabled=True, port=0)
    return {name: msgspec.structs.replace(config, admin=admin) for name, config in configured.items()}


async def ask(broker: Broker, method: str, path: str, body: object = None) -> dict[str, Any]:
    """A request to a broker's admin API; UsageError with its one line if it refuses."""
    admin = Admin(f"http://127.0.0.1:{broker.admin_port}", None)
    return await asyncio.to_thread(admin.ask, method, path, body)


async def test_the_admin_api_previews_and_refuses_in_one_line() -> None:
    async with federation(with_admin(configs("dht", brokers=2))) as brokers:
        columbus = brokers["columbus"]
        async with Client("127.0.0.1", columbus.port, client_id="c") as client:
            await client.move(50.0, 8.0, qos=1)
            membership_before = membership(columbus).status()
            rome = {"name": "rome", "address": "127.0.0.1:9", "location": "41.9,12.5"}
            view = membership(columbus).change(
                AddBroker(BrokerEntry("rome", (41.9, 12.5), "127.0.0.1:9")), dry_run=True
            )
            assert (view.changed, view.edition.number, view.brokers) == (True, 1, ["columbus", "frankfurt", "rome"])
            assert {(move.from_, move.to) for move in view.moves} == {("columbus", "rome"), ("frankfurt", "rome")}
            assert sum(move.km2 for move in view.moves) > 1e7
            assert view.clients_outside == 1
            assert membership(columbus).status() == membership_before
        for method, path, body, complaint in [
            ("POST", "/peers", {**rome, "name": "frankfurt"}, "two brokers of the federation are named frankfurt"),
            ("POST", "/peers", {**rome, "location": None}, "needs a location"),
            ("POST", "/peers", {**rome, "location": "900,0"}, "latitude"),
            ("POST", "/peers", {**rome, "name": "a b"}, "regex"),
            ("POST", "/peers", {**rome, "colour": 1}, "unknown field"),
            ("POST", "/peers", [], "Expected object"),
            ("DELETE", "/peers/nobody", None, "no broker 'nobody'"),
            ("PUT", "/areas", {"kind": "grid", "grid_deg": 7}, "divides 90"),
            ("PUT", "/areas", {"kind": "given", "areas": {"columbus": "POLYGON((0 0, 1 0, 1 1, 0 0))"}}, "not for"),
            ("POST", "/strategy", {"strategy": "single"}, "serves one broker"),
            ("POST", "/strategy", {"strategy": "os:system"}, "not that of this broker's config"),
        ]:
            with pytest.raises(UsageError, match=complaint) as caught:
                await ask(columbus, method, path, body)
            assert "\n" not in str(caught.value)
        answer = await ask(columbus, "GET", "")
        assert (answer["edition"], answer["change"]) == ({"number": 0, "origin": ""}, None)
        assert [broker["connected"] for broker in answer["brokers"]] == [True, True]


def run(broker: Broker, *words: str) -> str:
    """The command `geomq peers` against a broker's admin API."""
    result = CliRunner().invoke(main, ["peers", "--admin", f"http://127.0.0.1:{broker.admin_port}", *words])
    return result.output if result.exit_code == 0 else f"exit {result.exit_code}: {result.output}"


async def test_the_command_line_changes_all_brokers() -> None:
    async with federation(with_admin(configs("disgb_events", brokers=2))) as brokers:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"]
        preview = await asyncio.to_thread(run, columbus, "areas", "grid", "--degrees", "6", "--dry-run")
        assert "Edition 1 would be in force: 2 brokers" in preview
        assert "km2 from" in preview
        assert "Edition 1 is in force" in await asyncio.to_thread(run, columbus, "areas", "grid", "--degrees", "6")
        assert "areas grid; edition 1 by columbus" in await asyncio.to_thread(run, frankfurt, "list")
        switched = await asyncio.to_thread(run, frankfurt, "strategy", "mesh", "-o", "announce_ms=100")
        assert "2 brokers, mesh" in switched
        shown = json.loads(await asyncio.to_thread(run, columbus, "list", "--json"))
        assert (shown["strategy"], shown["options"]) == ("mesh", {"announce_ms": 100})
        assert "exit 2: geomq: the federation has no broker 'x'" in await asyncio.to_thread(
            run, columbus, "remove", "x"
        )
        assert "Nothing changes" in await asyncio.to_thread(run, columbus, "areas", "grid", "--degrees", "6")
