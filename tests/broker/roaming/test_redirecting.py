"""Which clients are sent to another broker, and where."""

import pytest
from tests.broker.federated import federation, until
from tests.broker.roaming.test_roaming import COLUMBUS, FRANKFURT, PARIS, lasting, quick, replace
from tests.probe import Probe

from geomq.broker.roaming import redirecting as redirecting_module
from geomq.broker.server import Broker
from geomq.geo import parse_location
from geomq.mqtt.codec.packets import Disconnect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V311
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.changes import SetAreas
from geomq.routing.sessions.addresses import ADDRESS_CHARS_MAX
from geomq.routing.sessions.messages import ClientAddress

pytestmark = pytest.mark.anyio


async def test_a_peer_may_say_where_its_clients_connect_in_plain_characters_only() -> None:
    async with federation(quick(brokers=2)) as brokers:
        assert brokers["frankfurt"].parts.roaming is not None
        redirecting, columbus = brokers["frankfurt"].parts.roaming.redirecting, BrokerId("columbus")
        asked, there = lasting("r", ("geo-roam", "1")), parse_location(COLUMBUS)
        for address in ("columbus.example.org:1883", "a\nb", "a" * (ADDRESS_CHARS_MAX + 1)):
            brokers["frankfurt"].parts.driver.handle(PeerSaid(columbus, ClientAddress(address)))
        assert redirecting.address_for(asked, there) == "columbus.example.org:1883"
        assert redirecting.address_for(asked, parse_location(PARIS)) is None
        assert redirecting.address_for(lasting("r", version=V311), there) is None


def box(west: int, south: int, east: int, north: int) -> str:
    return f"POLYGON (({west} {south}, {east} {south}, {east} {north}, {west} {north}, {west} {south}))"


EUROPE_IS_FRANKFURTS = SetAreas(
    "given",
    areas={
        "columbus": box(-180, -80, -30, 80),
        "frankfurt": box(-30, 0, 60, 80),
        "paris": box(-30, -80, 60, 0),
    },
)


async def check_sent(client: Probe, there: Broker) -> None:
    told = await client.expect(Disconnect)
    assert told.reason == ReasonCode.USE_ANOTHER_SERVER
    assert told.properties.server_reference == f"127.0.0.1:{there.port}"
    await client.drop()


async def test_clients_that_stand_still_are_sent_away_when_the_areas_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redirecting_module, "CHECKED_MAX", 2)
    async with federation(quick()) as brokers:
        paris = brokers["paris"]
        asked = (("geo-roam", "1"), ("geo-location", PARIS))
        clients = [(await Probe.connect(paris.port, lasting(f"r{n}", *asked)))[0] for n in range(3)]
        stays, _ = await Probe.connect(paris.port, lasting("s", ("geo-location", PARIS)))
        assert await clients[0].silent(1.2)
        assert paris.membership is not None
        paris.membership.change(EUROPE_IS_FRANKFURTS)
        for client in clients:
            await check_sent(client, brokers["frankfurt"])
        assert await stays.silent(1.2), "it did not ask for it"
        await stays.drop()


async def test_clients_that_stand_still_are_sent_away_when_the_rules_change() -> None:
    async with federation(quick(redirect="never")) as brokers:
        paris = brokers["paris"]
        client, _ = await Probe.connect(paris.port, lasting("r", ("geo-location", FRANKFURT)))
        assert await client.silent(1.2)
        config = paris.core.config
        paris.core.take_config(
            replace(config, federation=replace(config.federation, redirect="all")), paris.core.security
        )
        await check_sent(client, brokers["frankfurt"])


async def test_a_client_whose_session_knows_where_it_is_is_sent_there() -> None:
    async with federation(quick()) as brokers:
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r", ("geo-location", PARIS)))
        await client.drop()
        await until(lambda: brokers["paris"].core.clients["r"].connection is None)
        for _ in range(2):
            client, connack = await Probe.connect(brokers["columbus"].port, lasting("r", ("geo-roam", "1")))
            assert connack.session_present
            await check_sent(client, brokers["paris"])
