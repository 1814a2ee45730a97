"""A mosquitto.conf in GeoMQ's words: the same listeners, access, limits and persistence, and notes for the rest."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.config.load import parse_config
from geomq.broker.config.mosquitto_conf import _SPECIAL, LISTENER_PATHS, NEEDLESS, PLAIN, import_mosquitto
from geomq.broker.config.settings import Config
from geomq.errors import ConfigError, UsageError


def translate(tmp_path: Path, text: str) -> tuple[Config, list[str]]:
    file = tmp_path / "mosquitto.conf"
    file.write_text(text)
    imported = import_mosquitto(file)
    notes = [note for note in imported.notes if not note.startswith("max_packet_size is not set")]
    return parse_config(imported.toml, name="t", base=tmp_path, files=False), notes


def test_an_empty_file_is_a_local_broker_without_persistence(tmp_path: Path) -> None:
    config, notes = translate(tmp_path, "# nothing\n\n")
    assert [(one.kind, one.host, one.bind_port) for one in config.listeners] == [("tcp", "localhost", 1883)]
    assert config.auth.anonymous == "loopback"
    assert not config.persistence.enabled
    assert notes == []


def test_listeners_keep_port_address_protocol_and_tls(tmp_path: Path) -> None:
    config, notes = translate(
        tmp_path,
        """
        listener 1883 127.0.0.1
        max_connections 50
        listener 8883
        certfile cert.pem
        keyfile /etc/key.pem
        cafile ca.pem
        require_certificate true
        use_identity_as_username true
        tls_version tlsv1.3
        listener 9001
        protocol websockets
        max_connections -1
        """,
    )
    plain, tls, websocket = config.listeners
    assert (plain.kind, plain.host, plain.bind_port, plain.connections_max) == ("tcp", "127.0.0.1", 1883, 50)
    assert (tls.kind, tls.host, tls.bind_port, tls.tls_min) == ("tls", "*", 8883, "1.3")
    assert (tls.certfile, tls.keyfile) == (str(tmp_path / "cert.pem"), "/etc/key.pem")
    assert (tls.require_certificate, tls.certificate_user) == (True, "common_name")
    assert (websocket.kind, websocket.bind_port, websocket.connections_max) == ("websocket", 9001, None)
    assert websocket.origins == ("*",)
    assert notes == []


def test_the_default_listener_is_carried_over_too(tmp_path: Path) -> None:
    config, _ = translate(tmp_path, "port 1884\nbind_address 10.0.0.1\nlistener 1885")
    assert [(one.host, one.bind_port) for one in config.listeners] == [("10.0.0.1", 1884), ("*", 1885)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("allow_anonymous true", "loopback"),
        ("allow_anonymous false", "never"),
        ("listener 1883", "never"),
        ("listener 1883\nallow_anonymous true", "always"),
        ("listener 1883\nallow_anonymous false", "never"),
        ("port 1884", "never"),
    ],
)
def test_anonymous_clients_are_let_in_as_mosquitto_would(tmp_path: Path, text: str, expected: str) -> None:
    assert translate(tmp_path, text)[0].auth.anonymous == expected


def test_limits_persistence_and_files_are_carried_over(tmp_path: Path) -> None:
    config, notes = translate(
        tmp_path,
        """
        acl_file /etc/mosquitto/acl
        password_file users
        max_inflight_messages 7
        max_queued_messages 5000
        max_queued_bytes 1048576
        max_packet_size 65536
        max_keepalive 600
        max_topic_alias 3
        persistent_client_expiration 2w
        sys_interval 30
        persistence true
        persistence_location /var/lib/mosquitto/
        autosave_interval 60
        log_dest file /var/log/m.log
        log_type error
        log_type information
        pid_file /run/m.pid
        """,
    )
    limits = config.limits
    assert (limits.inflight_messages_max, limits.receive_maximum, limits.queue_messages_max) == (7, 7, 5000)
    assert (limits.queue_bytes_max, limits.packet_bytes_max, limits.keep_alive_max_s) == (1_048_576, 65_536, 600)
    assert (limits.topic_alias_maximum, limits.session_expiry_max_s) == (3, 1_209_600)
    assert (config.auth.acl_file, config.auth.password_file) == ("/etc/mosquitto/acl", str(tmp_path / "users"))
    assert (config.persistence.enabled, config.persistence.path) == (True, "/var/lib/mosquitto/geomq-store")
    assert (config.log.file, config.log.level, config.metrics.sys_interval_s) == ("/var/log/m.log", "info", 30)
    assert notes == ["persistence: only the settings are carried over, not what Mosquitto has saved"]


def test_no_limit_stays_no_limit(tmp_path: Path) -> None:
    limits = translate(tmp_path, "max_inflight_messages 0\nmax_queued_messages 0\nmax_queued_bytes 0")[0].limits
    assert limits.inflight_messages_max == 65_535
    assert limits.queue_messages_max == 1_000_000_000
    assert limits.queue_bytes_max == 1 << 40


def test_what_cannot_be_carried_over_is_listed_by_line(tmp_path: Path) -> None:
    _, notes = translate(
        tmp_path,
        "plugin /usr/lib/x.so\nmax_qos 1\nretain_available false\nuse_username_as_clientid true\n"
        "listener 0 /run/socket\nlistener 1883\npsk_hint x\nmax_keepalive soon\n"
        "connection cloud\naddress example.org\ntopic # both\nremote_password secret\nsys_interval 5\n"
        "per_listener_settings true\nkeyfile k\n",
    )
    assert notes == [
        "mosquitto.conf:1: plugin /usr/lib/x.so: not carried over",
        "mosquitto.conf:2: max_qos 1: not carried over",
        "mosquitto.conf:3: retain_available false: retained messages are always enabled",
        "mosquitto.conf:4: use_username_as_clientid true: clients must now send their user name as client id;"
        " the broker does not set it for them",
        "mosquitto.conf:5: listener 0 /run/socket: unix sockets are not carried over",
        "mosquitto.conf:7: psk_hint x: not carried over",
        "mosquitto.conf:8: max_keepalive soon: is not a number",
        "mosquitto.conf:9: bridge cloud to example.org: not carried over; to link GeoMQ brokers, fill in the [[peers]]"
        " at the end of the file",
        "mosquitto.conf:14: per_listener_settings true: access rules hold for all listeners; the last of each was"
        " carried over",
        "listener: keyfile without certfile has no effect",
    ]


def test_only_a_bridges_own_options_go_without_a_line(tmp_path: Path) -> None:
    _, notes = translate(
        tmp_path,
        "topic early\nconnection cloud\naddress example.org\nbridge_cafile ca.pem\nremote_username x\n"
        "try_private true\nplugin /usr/lib/x.so\npsk_file keys\nclientid_prefixes secure-\nauth_plugin y.so\n",
    )
    assert [note.partition(" ")[0] for note in notes] == [f"mosquitto.conf:{line}:" for line in (1, 2, 7, 8, 9, 10)]
    assert notes[2] == "mosquitto.conf:7: plugin /usr/lib/x.so: not carried over"


def test_a_bridge_becomes_a_link_to_fill_in(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text(
        "connection cloud\naddress example.org:8883 10.0.0.1\ntopic # out 1\ntopic alarm/# in\nremote_password secret\n"
        "connection lone\n"
    )
    toml = import_mosquitto(tmp_path / "mosquitto.conf").toml
    assert "secret" not in toml
    for line in ('"cloud" to ["example.org:8883", "10.0.0.1"]', '# name = "cloud"', '"# out 1"', '"alarm/# in"'):
        assert line in toml
    link = toml.partition("# [[peers]]")[2].partition("\n\n")[0].replace("# ", "")
    config = parse_config(f"{toml}\n[[peers]]{link}", name="t", base=tmp_path, files=False)
    assert [(peer.name, peer.address) for peer in config.peers] == [("cloud", "example.org:7883")]


def test_a_relative_folder_of_includes_is_taken_from_the_files_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.conf").write_text("sys_interval 3\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    config, _ = translate(tmp_path, "include_dir conf.d\n")
    assert config.metrics.sys_interval_s == 3


def test_included_files_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "b.conf").write_text("sys_interval 2\n")
    (tmp_path / "conf.d" / "B.conf").write_text("sys_interval 1\n")
    (tmp_path / "conf.d" / "z.txt").write_text("sys_interval 9\n")
    config, _ = translate(tmp_path, f"include_dir {tmp_path}/conf.d\n")
    assert config.metrics.sys_interval_s == 2


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read it: No such file"):
        import_mosquitto(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot read it: No such file"):
        translate(tmp_path, "include_dir /nonexistent/conf.d")


keys = st.sampled_from([*PLAIN, *_SPECIAL, *LISTENER_PATHS, *NEEDLESS, "connection", "address", "topic", "plugin"])
values = st.sampled_from(["true", "false", "0", "1", "1883", "-5", "99999999999", "", "a b", "2d", "tlsv1.1", "²"])


@settings(max_examples=200)
@given(st.lists(st.tuples(keys, values), max_size=12))
def test_any_file_is_a_config_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        translate(folder, "\n".join(" ".join(line) for line in lines))
    except (ConfigError, UsageError) as error:
        message = str(error)
        assert "\n" not in message
