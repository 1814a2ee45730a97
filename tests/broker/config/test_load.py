"""A config file is read whole or refused with one line that names file, section and key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.config.load import default_config, load_config, parse_config, with_port
from geomq.broker.config.settings import Config, Listener
from geomq.errors import ConfigError


def parse(text: str, base: Path = Path("/")) -> Config:
    return parse_config(text, name="geomq.toml", base=base)


def refusal(text: str, base: Path = Path("/")) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, base)
    message = str(caught.value)
    assert message.startswith("geomq.toml: ")
    assert "\n" not in message
    return message.removeprefix("geomq.toml: ")


def test_defaults_are_those_mosquitto_users_expect() -> None:
    config = default_config()
    assert [(one.kind, one.host, one.bind_port) for one in config.listeners] == [("tcp", "localhost", 1883)]
    assert config.limits.receive_maximum == config.limits.inflight_messages_max == 20
    assert config.limits.topic_alias_maximum == 10
    assert config.limits.queue_messages_max == 1000
    assert config.auth.anonymous == "loopback"
    assert config.metrics.sys_interval_s == 10
    assert Path(config.store_path) == Path.cwd() / "geomq-data" / "store"


def test_every_kind_of_listener_has_its_usual_port() -> None:
    assert {kind: Listener(kind=kind).bind_port for kind in ("tcp", "tls", "websocket")} == {
        "tcp": 1883,
        "tls": 8883,
        "websocket": 9001,
    }
    assert Listener(port=0).bind_port == 0
    assert Listener().bind_host is None
    assert not Listener().loopback
    assert Listener(host="127.0.0.2").loopback
    assert not Listener(host="127.evil.example").loopback


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[limit]", "unknown section 'limit'; did you mean 'limits'?"),
        ("port = 1883", "unknown key outside any section 'port'"),
        (
            "[limits]\nqueue_message_max = 1",
            "[limits]: unknown key 'queue_message_max'; did you mean 'queue_messages_max'?",
        ),
        ("[broker]\nacl_file = 'x'", "[broker]: unknown key 'acl_file'; it belongs in [auth]"),
        (
            "[limits]\nqueue_messages_max = '9'",
            "[limits]: queue_messages_max: Expected a whole number, got a text",
        ),
        ("[limits]\nqueue_messages_max = 0", "[limits]: queue_messages_max: Expected a whole number >= 1"),
        ("[limits]\nconnect_timeout_s = nan", "[limits]: connect_timeout_s: Expected float > 0.0"),
        ("[limits]\nconnect_timeout_s = inf", "[limits]: connect_timeout_s: Expected float <= 86400.0"),
        ("[listeners]\nport = 1", "[[listeners]]: write [[listeners]] for each, not [listeners]"),
        ("listeners = []", "[[listeners]]: at least one is required"),
        ("listeners = [1]", "[[listeners]] #1: expected a table [[listeners]]"),
        (
            "[[listeners]]\n[[listeners]]\nport = 70000",
            "[[listeners]] #2: port: Expected a whole number <= 65535",
        ),
        ("[[listeners]]\n[[listeners]]", "[[listeners]] #2: port: *:1883 is taken by #1"),
        ("[[listeners]]\nkind = 'tls'", "[[listeners]] #1: certfile is needed for kind 'tls'"),
        (
            "[[listeners]]\norigins = ['*']",
            "[[listeners]] #1: origins does not apply to kind 'tcp'; use a WebSocket kind",
        ),
        (
            "[[listeners]]\nrequire_certificate = true",
            "[[listeners]] #1: require_certificate does not apply to kind 'tcp'; use a TLS kind",
        ),
        (
            "[[listeners]]\ncertificate_user = 'subject'",
            "[[listeners]] #1: certificate_user needs require_certificate = true",
        ),
        ("[auth]\nanonymous = true", "[auth]: anonymous: Expected a text, got true or false"),
        ("[auth]\nacl_file = 'missing.acl'", "[auth]: acl_file: cannot read /missing.acl"),
        (
            "[admin]\nenabled = true\nhost = '0.0.0.0'",
            "[admin]: token_file is needed when host is not loopback",
        ),
        (
            "[geo]\nowntracks_topics = ['a#']",
            "[geo]: owntracks_topics: filter 'a#': '#' must be the whole last level",
        ),
        (
            "[routing]\noptions = {when = 2020-01-01}",
            "[routing]: options: only strings, numbers, true/false, lists and tables, not nested too deeply",
        ),
        ("[[peers]]\nname = 'b'", "[[peers]] #1: address is missing"),
        (
            "[[peers]]\nname = 'geomq'\naddress = 'h:1'",
            "[[peers]] #1: name: 'geomq' is already a broker of this federation",
        ),
        ("[[peers]]\nname = 'b'\naddress = 'h:0'", "[[peers]] #1: address: invalid port in 'h:0'"),
        ("[federation]\ncertfile = '/dev/null'", "[federation]: certfile and keyfile must be set together"),
        (
            "[federation]\nadmit = true",
            '[federation]: admit: name the brokers that may join, as in ["rome", "edge-*"], or say false',
        ),
        ("x =", "Invalid value (at end of document)"),
    ],
)
def test_a_mistake_is_named_in_one_line(text: str, message: str) -> None:
    assert refusal(text) == message


def test_bad_geometry_is_named_in_one_line() -> None:
    assert refusal("[broker]\nlocation = '91,0'").startswith("[broker]: location: ")
    assert refusal("[federation]\narea = 'POLYGON'").startswith("[federation]: area: ")


def test_whom_to_admit_is_a_list_of_names_and_patterns() -> None:
    text = "[federation]\nadmit = ['rome', 'edge-*', '?']"
    assert parse_config(text, name="f", base=Path()).federation.admit == ("rome", "edge-*", "?")
    for wrong in ("'rome'", "['']", "['a/b']", "['[ab]']", "1"):
        assert refusal(f"[federation]\nadmit = {wrong}").startswith("[federation]: admit")


def test_good_geometry_is_accepted() -> None:
    assert parse("[broker]\nlocation = '52.5,13.4'").broker.location == "52.5,13.4"


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("")
    file = tmp_path / "geomq.toml"
    file.write_text("[auth]\npassword_file = 'users'\n[persistence]\npath = '../elsewhere'\n")
    config = load_config(file)
    assert config.auth.password_file == str(tmp_path / "users")
    assert config.store_path == str(tmp_path.parent / "elsewhere")
    assert config.broker.data_dir == str(tmp_path / "geomq-data")


def test_unreadable_files_are_refused_in_one_line(tmp_path: Path) -> None:
    big, binary = tmp_path / "big.toml", tmp_path / "binary.toml"
    big.write_bytes(b"#" * 1_048_577)
    binary.write_bytes(b"\xff\xfe")
    for path, message in (
        (tmp_path / "none.toml", "cannot read it: No such file or directory"),
        (tmp_path, "cannot read it: Is a directory"),
        (big, "larger than 1048576 bytes, not a config file"),
        (binary, "not UTF-8 text"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: {message}"


def test_deep_nesting_is_refused() -> None:
    assert refusal("x = " + "[" * 100_000) == "nested too deeply"


@given(st.text(max_size=200))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    try:
        parse(text)
    except ConfigError as error:
        message = str(error)
        assert "\n" not in message


def test_a_port_on_the_command_line_moves_the_first_plain_listener(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("")
    config = parse("[[listeners]]\nkind='websocket'\n[[listeners]]\nport=5\n[[listeners]]\nport=6")
    assert [one.bind_port for one in with_port(config, 7).listeners] == [9001, 7, 6]
    only = parse("[[listeners]]\nkind='tls'\ncertfile='pem'\nkeyfile='pem'", base=tmp_path)
    assert [(one.kind, one.host, one.bind_port) for one in with_port(only, 7).listeners] == [
        ("tls", "*", 8883),
        ("tcp", "localhost", 7),
    ]
