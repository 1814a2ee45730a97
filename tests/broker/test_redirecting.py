"""Which clients are sent to another broker, and where."""

import pytest
from tests.broker.federated import federation
from tests.broker.test_roaming import COLUMBUS, PARIS, lasting, quick

from geomq.broker.redirecting import ADDRESS_CHARS_MAX
from geomq.geo import parse_location
from geomq.mqtt.types import V311
from geomq.routing.model import BrokerId

pytestmark = pytest.mark.anyio


async def test_a_peer_may_say_where_its_clients_connect_in_plain_characters_only() -> None:
    async with federation(quick(brokers=2)) as brokers:
        assert brokers["frankfurt"]._roaming is not None
        redirecting, columbus = brokers["frankfurt"]._roaming.redirecting, BrokerId("columbus")
        asked, there = lasting("r", ("geo-roam", "1")), parse_location(COLUMBUS)
        redirecting.learn(columbus, "columbus.example.org:1883")
        for address in ("a\nb", "a" * (ADDRESS_CHARS_MAX + 1)):
            redirecting.learn(columbus, address)
        assert redirecting.address_for(asked, there) == "columbus.example.org:1883"
        assert redirecting.address_for(asked, parse_location(PARIS)) is None
        assert redirecting.address_for(lasting("r", version=V311), there) is None
