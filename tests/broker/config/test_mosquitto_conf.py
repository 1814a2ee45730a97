"""A mosquitto.conf in GeoMQ's words: the same listeners, access, limits and persistence, and notes for the rest."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.config.load import parse_config
from geomq.broker.config.mosquitto_conf import Imported, import_mosquitto
from geomq.broker.config.mosquitto_options import NEEDLESS, OPENING, TAKES, UNSUPPORTED
from geomq.broker.config.settings import Config
from geomq.errors import ConfigError, UsageError


def imported(tmp_path: Path, text: str) -> Imported:
    file = tmp_path / "mosquitto.conf"
    file.write_text(text)
    return import_mosquitto(file)


def translate(tmp_path: Path, text: str) -> tuple[Config, list[str]]:
    made = imported(tmp_path, text)
    assert made.opening == []
    notes = [note for note in made.notes if not note.startswith("max_packet_size is not set")]
    return parse_config(made.toml, name="t", base=tmp_path, files=False), notes


def opening(tmp_path: Path, text: str) -> list[str]:
    """What keeps the file from being written."""
    return imported(tmp_path, text).opening


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
    assert (config.listeners[0].topic_alias_maximum, limits.session_expiry_max_s) == (3, 1_209_600)
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
        "use_username_as_clientid true\nlistener 0 /run/socket\nlistener 1883\nmax_keepalive soon\n"
        "connection cloud\naddress example.org\ntopic # both\nremote_password secret\nsys_interval 5\n"
        "cafile k\nmemory_limit 5\nmax_inflight_bytes 5\nqueue_qos0_messages true\nupgrade_outgoing_qos true\n"
        "auto_id_prefix x\nlog_type websockets\ntls_version tlsv1.1\nmax_queued_bytes 5\n",
    )
    assert notes == [
        "mosquitto.conf:1: use_username_as_clientid true: clients must now send their user name as client id;"
        " the broker does not set it for them",
        "mosquitto.conf:2: listener 0 /run/socket: unix sockets are not carried over",
        "mosquitto.conf:4: max_keepalive soon: is not a number",
        "mosquitto.conf:5: bridge cloud to example.org: not carried over; to link GeoMQ brokers, fill in the [[peers]]"
        " at the end of the file",
        "mosquitto.conf:11: memory_limit 5: not carried over; see [limits] memory_bytes_max, which counts the whole"
        " process",
        "mosquitto.conf:12: max_inflight_bytes 5: not carried over; as many bytes are in flight as [limits]"
        " queue_bytes_max says",
        "mosquitto.conf:13: queue_qos0_messages true: not carried over; QoS 0 messages are not queued for disconnected"
        " clients",
        "mosquitto.conf:14: upgrade_outgoing_qos true: not carried over; an event is delivered with its own QoS at"
        " most",
        "mosquitto.conf:15: auto_id_prefix x: not carried over; ids that the broker assigns begin with auto-",
        "mosquitto.conf:16: log_type websockets: not carried over; the log has the levels error, warning, info and"
        " debug",
        "mosquitto.conf:17: tls_version tlsv1.1: too old, TLS 1.2 is the oldest accepted",
        "mosquitto.conf:18: max_queued_bytes 5: 1024 is the least here",
        "mosquitto.conf:10: cafile k: cafile without certfile has no effect",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("plugin /usr/lib/x.so", "plugins are not supported"),
        ("auth_plugin /usr/lib/x.so", "plugins are not supported"),
        ("psk_file keys", "pre-shared keys are not supported"),
        ("clientid_prefixes secure-", "not supported"),
        ("capath /etc/certs", "not supported; put the authorities into one cafile"),
        ("bind_interface eth0", "not supported; name the address of the interface in the listener"),
        ("allow_anonymous yes", "is not true or false; Mosquitto refuses this, too"),
        ("password_file", "names no file; Mosquitto refuses this, too"),
        ("max_qos 3", "is not from 0 to 2; Mosquitto refuses this, too"),
        ("max_packet_size 0", "is not 20 or more; Mosquitto refuses this, too"),
        ("max_packet_size many", "is not a number"),
        ("mount_point a/#", "is not the beginning of a topic; Mosquitto refuses this, too"),
        ("mount_point a", "is not carried over: it has to end with / and may not begin with $"),
        ("socket_domain ipv9", "is not ipv4 or ipv6; Mosquitto refuses this, too"),
        ("tls_version ssl", "is no version of TLS; Mosquitto refuses this, too"),
        ("acces_file rules", "is not an option of Mosquitto 2.0"),
        ("listener\t1884", "is not an option of Mosquitto 2.0"),
    ],
)
def test_what_might_open_access_is_told_apart_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    assert opening(tmp_path, f"listener 1883\n{line}\n") == [f"mosquitto.conf:2: {line}: {reason}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "listener 1883\nplugin_opt_password hunter2",
            "mosquitto.conf:2: plugin_opt_password: plugins are not supported",
        ),
        ("listener 1883\npsk_hint secret", "mosquitto.conf:2: psk_hint: pre-shared keys are not supported"),
        (
            "allow_anonymous false\nper_listener_settings true\nlistener 1883",
            "mosquitto.conf:2: per_listener_settings true: has to stand before all other security settings; Mosquitto"
            " refuses this, too",
        ),
        (
            "listener 1883\nacl_file a\nacl_file b",
            "mosquitto.conf:3: acl_file b: is given twice; Mosquitto refuses this, too",
        ),
        (
            "listener 1883 example\nsocket_domain ipv4",
            "mosquitto.conf:2: socket_domain ipv4: not carried over for a name; give the listener an address",
        ),
        (
            "listener 8883\ncertfile c\nkeyfile k\nuse_identity_as_username true",
            "mosquitto.conf:4: use_identity_as_username true: without require_certificate Mosquitto lets nobody in"
            " here",
        ),
        (
            "listener 8883\ncertfile c\nkeyfile k\nrequire_certificate true",
            "mosquitto.conf:2: certfile c: require_certificate needs a cafile",
        ),
        ("listener 8883\ncertfile c", "mosquitto.conf:2: certfile c: certfile without keyfile has no effect"),
        (
            "mount_point a/\nlistener 1883",
            "mosquitto.conf:1: mount_point a/: stands before the first listener; Mosquitto refuses this, too",
        ),
        (
            "listener 0 /run/socket\nallow_anonymous true",
            "mosquitto.conf: none of its listeners could be carried over",
        ),
    ],
)
def test_so_is_what_only_makes_no_sense_together(tmp_path: Path, text: str, line: str) -> None:
    assert opening(tmp_path, text) == [line]


def test_listeners_keep_their_own_rules(tmp_path: Path) -> None:
    config, notes = translate(
        tmp_path,
        """
        per_listener_settings true
        listener 1883
        allow_anonymous false
        password_file users
        acl_file rules
        allow_zero_length_clientid false
        listener 1884 127.0.0.1
        allow_anonymous true
        listener 1885
        """,
    )
    public, local, last = config.listeners
    assert (public.anonymous, local.anonymous, last.anonymous) == ("never", "always", "never")
    assert (public.password_file, public.acl_file) == (str(tmp_path / "users"), str(tmp_path / "rules"))
    assert (local.password_file, local.acl_file, last.password_file) == (None, None, None)
    assert (public.empty_client_id, local.empty_client_id) == (False, None)
    assert (config.auth.anonymous, config.auth.password_file, config.auth.acl_file) == ("never", None, None)
    assert notes == []


def test_rules_for_all_stay_rules_for_all(tmp_path: Path) -> None:
    config, _ = translate(
        tmp_path, "listener 1883\nallow_anonymous true\nlistener 1884\nallow_anonymous false\npassword_file users\n"
    )
    assert [each.anonymous for each in config.listeners] == [None, None]
    assert (config.auth.anonymous, config.auth.password_file) == ("never", str(tmp_path / "users"))


def test_listeners_keep_mount_point_quality_and_aliases_and_limits_go_for_all(tmp_path: Path) -> None:
    config, notes = translate(
        tmp_path,
        """
        listener 1883
        mount_point site/
        max_qos 1
        max_topic_alias 3
        socket_domain ipv4
        listener 1884
        retain_available false
        message_size_limit 1000
        max_packet_size 30
        max_keepalive 0
        check_retain_source false
        allow_zero_length_clientid false
        """,
    )
    first, second = config.listeners
    assert (first.mount_point, first.qos_max, first.topic_alias_maximum, first.host) == ("site/", 1, 3, "0.0.0.0")
    assert (second.mount_point, second.qos_max, second.topic_alias_maximum, second.host) == (None, None, None, "*")
    limits = config.limits
    assert (limits.retain, limits.payload_bytes_max, limits.packet_bytes_max) == (False, 1_000, 30)
    assert (limits.keep_alive_max_s, config.auth.check_retain_source, config.auth.empty_client_id) == (
        65_535,
        False,
        False,
    )
    assert notes == ["mosquitto.conf:11: max_keepalive 0: taken for no limit; Mosquitto 2.0 refuses it"]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ["localhost"]),
        ("max_connections 5", ["localhost"]),
        ("max_topic_alias 5\nlistener 1884", ["*"]),
        ("max_qos 1\nlistener 1884", ["*", "*"]),
        ("bind_address 10.0.0.1\nlistener 1884", ["10.0.0.1", "*"]),
        ("password_file users\nlistener 1884", ["*"]),
        ("per_listener_settings true\npassword_file users\nlistener 1884", ["*", "*"]),
        ("per_listener_settings true\nallow_anonymous true\nlistener 1884", ["*"]),
    ],
)
def test_the_listeners_are_those_that_mosquitto_opens(tmp_path: Path, text: str, hosts: list[str]) -> None:
    assert [each.host for each in translate(tmp_path, text)[0].listeners] == hosts


def test_only_a_bridges_own_options_go_without_a_line(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        "topic early\nconnection cloud\naddress example.org\nbridge_cafile ca.pem\nremote_username x\n"
        "try_private true\nplugin /usr/lib/x.so\npsk_file keys\n",
    )
    assert [note.partition(" ")[0] for note in made.notes] == [
        "mosquitto.conf:1:",
        "mosquitto.conf:2:",
        "max_packet_size",
    ]
    assert [line.partition(" ")[0] for line in made.opening] == ["mosquitto.conf:7:", "mosquitto.conf:8:"]


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


keys = st.sampled_from([*TAKES, *NEEDLESS, *OPENING, *UNSUPPORTED, "connection", "address", "topic", "plugin_opt_x"])
values = st.sampled_from(["true", "false", "0", "1", "1883", "-5", "99999999999", "", "a b", "2d", "tlsv1.1", "²"])


@settings(max_examples=200)
@given(st.lists(st.tuples(keys, values), max_size=12))
def test_any_file_is_a_config_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        made = imported(folder, "\n".join(" ".join(line) for line in lines))
        assert all("\n" not in line for line in (*made.notes, *made.opening))
        parse_config(made.toml, name="t", base=folder, files=False)
    except (ConfigError, UsageError) as error:
        message = str(error)
        assert "\n" not in message


def test_the_docs_say_what_becomes_of_each_option() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "replace-mosquitto.md"
    table = page.read_text().partition("## What becomes of each option")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    named = [option for row in rows for option in re.findall(r"`([^`]+)`", row)]
    assert len(named) == len(set(named))
    known = {*TAKES, *NEEDLESS, *OPENING, *UNSUPPORTED}
    beside = {"address", "addresses", "topic", "connection", "include_dir", "bridge_*", "auth_opt_*", "plugin_opt_*"}
    assert set(named) == known | beside
