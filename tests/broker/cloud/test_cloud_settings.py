"""The cloud in config files, and the how-to that shows them."""

import re
from pathlib import Path

import pytest

from geomq.broker.cloud.link import cloud_settings
from geomq.broker.config.load import parse_config
from geomq.broker.config.settings import Cloud
from geomq.errors import ConfigError
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.registry import strategy_class


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("address = 'host:0'", "invalid port"),
        ("address = 'host'", "address"),
        ("cafile = 'x.pem'", "tls = true"),
        ("tls = true\ncertfile = 'x.pem'", "must be set together"),
        ("adress = 'host:1'", "did you mean 'address'?"),
    ],
)
def test_a_wrong_cloud_section_is_refused_in_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        parse_config(f"[cloud]\n{text}\n", name="geomq.toml", base=tmp_path, files=False)


def test_the_how_to_is_complete(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "broadcast-groups.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    files = [text for language, text in blocks if language == "toml"]
    assert len(files) == 3
    brokers = {}
    for text in files:
        config = parse_config(text, name="how-to", base=tmp_path, files=False)
        brokers[config.broker.name] = config
        assert strategy_class(config.routing.strategy) is BroadcastGroups
        BroadcastGroups.parse_options(config.routing.options)
        assert config.cloud.address == "cloud.example:8883"
    for name, config in brokers.items():
        assert {peer.name for peer in config.peers} == brokers.keys() - {name}
        for peer in config.peers:
            assert peer.location == brokers[peer.name].broker.location
            assert peer.address == f"{peer.name}.example:{brokers[peer.name].federation.port}"


def test_what_is_not_given_has_a_default(tmp_path: Path) -> None:
    address, connect = cloud_settings(Cloud(address="[::1]:1883"), "edge")
    assert (address.host, address.port, address.tls) == ("::1", 1883, None)
    assert connect.client_id == "geomq-edge"
    assert connect.username is None
    assert connect.password is None


def test_an_empty_password_or_a_broken_certificate_is_refused_in_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="one line of at least 1 bytes"):
        cloud_settings(Cloud(address="h:1", username="u", password_file=str(empty)), "edge")
    with pytest.raises(ConfigError, match="cannot read it"):
        cloud_settings(Cloud(address="h:1", username="u", password_file=str(tmp_path / "none")), "edge")
    with pytest.raises(ConfigError, match="certificate"):
        cloud_settings(Cloud(address="h:1", tls=True, cafile=str(empty)), "edge")
