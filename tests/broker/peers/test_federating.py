"""From config to federation: who is in it, what they own, how they trust each other."""

from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import configs

from geomq.broker.config import settings
from geomq.broker.config.settings import Config
from geomq.broker.peers.federating import credentials_of, description_of, peers_of, tls_of
from geomq.errors import ConfigError
from geomq.geo import Location
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation
from geomq.routing.federation import description as descriptions


def changed(**federation: object) -> Config:
    config = configs("flood_events", brokers=2)["columbus"]
    return msgspec.structs.replace(config, federation=msgspec.structs.replace(config.federation, **federation))


def federation_of(config: Config) -> Federation:
    return descriptions.federation_of(description_of(config))


def test_every_broker_comes_to_the_same_federation() -> None:
    found = [federation_of(config) for config in configs("flood_events").values()]
    assert {federation.ids for federation in found} == {("columbus", "frankfurt", "paris", "sydney")}
    assert {federation.owner(Location(48.0, 2.0)) for federation in found} == {"paris"}


def test_a_broker_without_peers_is_alone() -> None:
    assert federation_of(Config(broker=settings.BrokerSettings(name="me"))).ids == ("me",)


def test_areas_are_given_for_all_or_for_none() -> None:
    with pytest.raises(ConfigError, match="not for frankfurt"):
        federation_of(changed(area="POLYGON((0 0, 10 0, 10 10, 0 10, 0 0))"))


def test_a_peer_without_a_place_is_refused() -> None:
    config = configs("flood_events", brokers=2)["columbus"]
    nowhere = tuple(msgspec.structs.replace(peer, location=None) for peer in config.peers)
    with pytest.raises(ConfigError, match="frankfurt of the federation needs a location"):
        federation_of(msgspec.structs.replace(config, peers=nowhere))


def test_two_brokers_of_one_name_are_refused() -> None:
    config = configs("flood_events", brokers=2)["columbus"]
    with pytest.raises(ConfigError, match="named frankfurt"):
        federation_of(msgspec.structs.replace(config, peers=config.peers * 2))


def test_addresses_may_be_ipv6() -> None:
    config = configs("flood_events", brokers=2)["columbus"]
    peer = msgspec.structs.replace(config.peers[0], address="[::1]:1884")
    assert peers_of(description_of(msgspec.structs.replace(config, peers=(peer,))), BrokerId("columbus")) == {
        "frankfurt": ("::1", 1884)
    }


def test_off_loopback_a_key_or_certificates_are_needed(tmp_path: Path) -> None:
    assert credentials_of(changed()).key is None
    with pytest.raises(ConfigError, match="key_file or certfile"):
        credentials_of(changed(host="*"))
    key = tmp_path / "key"
    key.write_text("a shared key of enough bytes\n")
    assert credentials_of(changed(host="*", key_file=str(key))).key == b"a shared key of enough bytes"
    key.write_text("short")
    with pytest.raises(ConfigError, match="shorter than 16"):
        credentials_of(changed(key_file=str(key)))


def test_a_certificate_needs_its_key_and_an_authority() -> None:
    assert tls_of(changed()) == (None, None)
    with pytest.raises(ConfigError, match="keyfile and cafile"):
        tls_of(changed(certfile="cert.pem"))
