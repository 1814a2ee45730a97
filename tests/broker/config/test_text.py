"""The printed config loads back to the same config, whatever it holds."""

import tomllib
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.config.keys import sections
from geomq.broker.config.load import default_config, parse_config
from geomq.broker.config.settings import Config
from geomq.broker.config.text import config_text, toml_value

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def reload(config: Config) -> Config:
    return parse_config(config_text(config), name="printed", base=Path("/elsewhere"))


def test_the_default_config_loads_back_to_itself() -> None:
    assert reload(default_config()) == default_config()


def test_a_full_config_loads_back_to_itself(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("")
    text = """
        [broker]
        name = "berlin"
        [[listeners]]
        kind = "websocket_tls"
        certfile = "pem"
        keyfile = "pem"
        cafile = "pem"
        require_certificate = true
        certificate_user = "common_name"
        origins = ["https://a.example", "https://b.example"]
        [[listeners]]
        host = "::1"
        port = 0
        connections_max = 9
        [limits]
        publish_rate_per_s = 12.5
        [routing]
        strategy = "disgb_events"
        options = {savings = ["EG1", "EG2"], "odd key" = {deep = 1.5, yes = true}}
        [[peers]]
        name = "paris"
        address = "paris.example:8885"
        [[peers]]
        name = "rome"
        address = "[::1]:8885"
    """
    config = parse_config(text, name="full", base=tmp_path)
    assert reload(config) == config
    assert len(config.peers) == len(config.listeners) == 2


def test_every_key_is_printed_with_its_description() -> None:
    text = config_text(default_config())
    for section in sections().values():
        assert section.title in text
        if section.name not in ("peers", "topics"):
            for key in section.keys:
                assert f"\n{key.name} = " in text or f"\n# {key.name} =\n" in text
                assert key.text[:40] in text


@given(plain)
def test_any_plain_value_survives_toml(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value


@given(st.dictionaries(texts, plain, max_size=4))
def test_any_strategy_options_survive_printing(options: dict[str, object]) -> None:
    config = default_config()
    config = msgspec.structs.replace(config, routing=msgspec.structs.replace(config.routing, options=options))
    assert tomllib.loads(config_text(config))["routing"]["options"] == options
