"""What all parts share: here, what clients are offered at each listener."""

import pytest
from tests.broker.federated import configs, federation

from geomq.broker.config.settings import Config, Limits, Listener
from geomq.broker.core import make_policies
from geomq.mqtt.session.outbound import PACKET_ID_MAX


def test_a_listener_offers_what_it_says_and_else_what_goes_for_all() -> None:
    own = Listener(port=1, qos_max=0, retain=False, packet_bytes_max=20, keep_alive_max_s=10, topic_alias_maximum=0)
    plain = Listener(port=2)
    policies = make_policies(Config(listeners=(own, plain), limits=Limits(qos_max=1, receive_maximum=7)))
    assert policies[plain] == policies[None]
    assert (policies[plain].qos_max, policies[plain].retain_available, policies[plain].receive_max) == (1, True, 7)
    mine = policies[own]
    assert (mine.qos_max, mine.retain_available, mine.receive_max) == (0, False, 7)
    assert (mine.packet_size_max, mine.keep_alive_max_s, mine.alias_max) == (20, 10, 0)


@pytest.mark.anyio
async def test_brokers_of_a_federation_send_under_packet_identifiers_of_their_own() -> None:
    async with federation(configs("flood_events", brokers=3)) as brokers:
        ids = [set(broker.core.policy_at(None).packet_ids) for broker in brokers.values()]
    assert len(set().union(*ids)) == sum(map(len, ids))
    assert all(min(each) >= 1 and max(each) <= PACKET_ID_MAX for each in ids)
