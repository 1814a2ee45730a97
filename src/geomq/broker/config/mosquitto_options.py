"""What becomes of each option of a mosquitto.conf: which key it is here, whether it needs none or has no counterpart.

Options whose loss might open access raise OpensAccessError, all others ValueError, with the reason.
"""

import ipaddress
from collections.abc import Callable

from geomq.broker.config.mosquitto_state import ImportedListener, ImportState, OpensAccessError

Take = Callable[[ImportState, str], None]

PACKET_BYTES_MAX = 268_435_460
UNLIMITED = 1_000_000_000
LEVELS = {
    "error": "error",
    "warning": "warning",
    "notice": "info",
    "information": "info",
    "debug": "debug",
    "all": "debug",
}
EXPIRY_UNITS = {"h": 3_600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}

NEEDLESS = {
    "allow_duplicate_messages": "an event that matches several subscriptions is delivered once",
    "autosave_interval": "every change is saved at once",
    "autosave_on_changes": "every change is saved at once",
    "connection_messages": "connections are logged at level info",
    "log_facility": "the log does not go to syslog",
    "log_timestamp": "every line has a timestamp",
    "log_timestamp_format": "every line has a timestamp",
    "persistence_file": "the store is a folder",
    "pid_file": "no PID file is written; use the service manager",
    "set_tcp_nodelay": "always so",
    "user": "the broker runs as whoever starts it",
    "websockets_headers_size": "headers are bounded",
    "websockets_log_level": "WebSockets are logged like all else",
}
UNSUPPORTED = {
    "ciphers": "not carried over; TLS is 1.2 or newer with OpenSSL's choice of ciphers",
    "ciphers_tls1.3": "not carried over; TLS is 1.2 or newer with OpenSSL's choice of ciphers",
    "dhparamfile": "not carried over; OpenSSL chooses the parameters",
    "http_dir": "not carried over; no files are served",
    "memory_limit": "not carried over; see [limits] memory_bytes_max, which counts the whole process",
    "tls_engine": "not carried over; keys are read from files",
    "tls_engine_kpass_sha1": "not carried over; keys are read from files",
    "tls_keyform": "not carried over; keys are read from files",
}
OPENING = {
    "auth_plugin": "plugins are not supported",
    "auth_plugin_deny_special_chars": "plugins are not supported",
    "bind_interface": "not supported; name the address of the interface in the listener",
    "capath": "not supported; put the authorities into one cafile",
    "clientid_prefixes": "not supported",
    "plugin": "plugins are not supported",
    "psk_file": "pre-shared keys are not supported",
    "psk_hint": "pre-shared keys are not supported",
}
PRIVATE = ("auth_opt_", "plugin_opt_", "psk_hint")
"""What options begin with whose values may be secrets and are not shown."""
BRIDGE_OPTIONS = {
    "address",
    "addresses",
    "cleansession",
    "clientid",
    "idle_timeout",
    "keepalive_interval",
    "local_cleansession",
    "local_clientid",
    "local_password",
    "local_username",
    "notification_topic",
    "notifications",
    "notifications_local_only",
    "password",
    "remote_clientid",
    "remote_password",
    "remote_username",
    "restart_timeout",
    "round_robin",
    "start_type",
    "threshold",
    "topic",
    "try_private",
    "username",
}
"""What else belongs to a bridge, beside everything that begins with bridge_."""
ABOUT_ACCESS = {
    "acl_file",
    "allow_anonymous",
    "allow_zero_length_clientid",
    "bind_address",
    "cafile",
    "certfile",
    "check_retain_source",
    "crlfile",
    "keyfile",
    "listener",
    "max_connections",
    "max_packet_size",
    "max_qos",
    "message_size_limit",
    "mount_point",
    "password_file",
    "per_listener_settings",
    "port",
    "protocol",
    "require_certificate",
    "retain_available",
    "socket_domain",
    "tls_version",
    "use_identity_as_username",
    "use_subject_as_username",
}
"""Options that decide who may come in or what they may do: where their value makes no sense, nothing is guessed."""
REFUSED_THERE = "Mosquitto refuses this, too"


def number(value: str) -> int:
    if not (value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 12):
        raise ValueError("is not a number")
    return int(value)


def number_within(value: str, lowest: int, highest: int) -> int:
    found = number(value)
    if not lowest <= found <= highest:
        raise ValueError(f"is not from {lowest} to {highest}; {REFUSED_THERE}")
    return found


def flag(value: str) -> bool:
    if value not in ("true", "false", "1", "0"):
        raise ValueError(f"is not true or false; {REFUSED_THERE}")
    return value in ("true", "1")


def _path(state: ImportState, value: str) -> str:
    if not value:
        raise ValueError(f"names no file; {REFUSED_THERE}")
    return str(state.base / value)


# Listeners.


def _port(state: ImportState, value: str) -> None:
    state.default.keys["port"] = number_within(value, 1, 65_535)


def _bind_address(state: ImportState, value: str) -> None:
    if not value:
        raise ValueError(f"names no address; {REFUSED_THERE}")
    state.default.keys["host"] = value


def _listener(state: ImportState, value: str) -> None:
    port, _, host = value.partition(" ")
    made = ImportedListener()
    state.listeners.append(made)
    if port == "0":
        made.leave_out()
        raise ValueError("unix sockets are not carried over")
    try:
        made.keys["port"] = number_within(port, 1, 65_535)
    except ValueError:
        made.leave_out()
        raise
    if host.strip():
        made.keys["host"] = host.strip()


def _protocol(state: ImportState, value: str) -> None:
    if value not in ("mqtt", "websockets"):
        state.listener.leave_out()
        raise ValueError("the listener is not carried over")
    state.listener.speak_websocket(value == "websockets")


def _socket_domain(state: ImportState, value: str) -> None:
    wildcards = {"ipv4": "0.0.0.0", "ipv6": "::"}
    if value not in wildcards:
        raise ValueError(f"is not ipv4 or ipv6; {REFUSED_THERE}")
    host = state.listener.keys.get("host")
    if host is None:
        state.listener.keys["host"] = wildcards[value]
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise OpensAccessError("not carried over for a name; give the listener an address") from None


def _max_connections(state: ImportState, value: str) -> None:
    if number(value) > 0:
        state.listener.keys["connections_max"] = min(number(value), UNLIMITED)


def _max_qos(state: ImportState, value: str) -> None:
    state.listener.keys["qos_max"] = number_within(value, 0, 2)


def _max_topic_alias(state: ImportState, value: str) -> None:
    state.listener.keys["topic_alias_maximum"] = number_within(value, 0, 65_535)


def _mount_point(state: ImportState, value: str) -> None:
    if not state.listeners:
        raise ValueError(f"stands before the first listener; {REFUSED_THERE}")
    if not value or any(char in value for char in "+#"):
        raise ValueError(f"is not the beginning of a topic; {REFUSED_THERE}")
    if not value.endswith("/") or value.startswith("$") or len(value) > 1_024:
        raise ValueError("is not carried over: it has to end with / and may not begin with $")
    state.listener.keys["mount_point"] = value


def _tls_file(key: str) -> Take:
    def take(state: ImportState, value: str) -> None:
        state.listener.keys[key] = _path(state, value)
        state.listener.where[key] = state.line

    return take


def _require_certificate(state: ImportState, value: str) -> None:
    state.listener.keys["require_certificate"] = flag(value)


def _identity(state: ImportState, value: str) -> None:
    state.listener.take_user_from("identity", flag(value))
    state.listener.where["certificate_user"] = state.line


def _subject(state: ImportState, value: str) -> None:
    state.listener.take_user_from("subject", flag(value))
    state.listener.where["certificate_user"] = state.line


def _tls_version(state: ImportState, value: str) -> None:
    if value in ("tlsv1", "tlsv1.1"):
        state.note("too old, TLS 1.2 is the oldest accepted")
        return
    if value not in ("tlsv1.2", "tlsv1.3"):
        raise ValueError(f"is no version of TLS; {REFUSED_THERE}")
    state.listener.keys["tls_min"] = value[4:]


# Rules.


def _per_listener(state: ImportState, value: str) -> None:
    if state.rules_seen:
        raise ValueError(f"has to stand before all other security settings; {REFUSED_THERE}")
    state.keep_rules_apart(flag(value))


def _allow_anonymous(state: ImportState, value: str) -> None:
    state.rules.let_anonymous_in(flag(value))


def _rules_file(key: str) -> Take:
    def take(state: ImportState, value: str) -> None:
        if key in state.rules.files:
            raise ValueError(f"is given twice; {REFUSED_THERE}")
        state.rules.files[key] = _path(state, value)

    return take


def _empty_client_id(state: ImportState, value: str) -> None:
    state.rules.let_nameless_in(flag(value))


def _auto_id_prefix(_state: ImportState, value: str) -> None:
    if value != "auto-":
        raise ValueError("not carried over; ids that the broker assigns begin with auto-")


def _username_as_clientid(state: ImportState, value: str) -> None:
    if flag(value):
        state.put("auth", "client_id", "username")
        raise ValueError("clients must now send their user name as client id; the broker does not set it for them")


def _check_retain_source(state: ImportState, value: str) -> None:
    state.put("auth", "check_retain_source", flag(value))


# Limits.


def _max_packet_size(state: ImportState, value: str) -> None:
    size = number(value)
    if size < 20:
        raise ValueError(f"is not 20 or more; {REFUSED_THERE}")
    state.put("limits", "packet_bytes_max", min(size, PACKET_BYTES_MAX))


def _message_size_limit(state: ImportState, value: str) -> None:
    state.put("limits", "payload_bytes_max", number_within(value, 0, PACKET_BYTES_MAX))


def _max_keepalive(state: ImportState, value: str) -> None:
    if value == "0":
        state.put("limits", "keep_alive_max_s", 65_535)
        state.note("taken for no limit; Mosquitto 2.0 refuses it")
        return
    state.put("limits", "keep_alive_max_s", number_within(value, 10, 65_535))


def _retain_available(state: ImportState, value: str) -> None:
    state.put("limits", "retain", flag(value))


def _inflight(state: ImportState, value: str) -> None:
    wanted = min(number_within(value, 0, UNLIMITED) or 65_535, 65_535)
    state.put("limits", "inflight_messages_max", wanted)
    state.put("limits", "receive_maximum", wanted)


def _inflight_bytes(_state: ImportState, value: str) -> None:
    if number(value):
        raise ValueError("not carried over; as many bytes are in flight as [limits] queue_bytes_max says")


def _queued_messages(state: ImportState, value: str) -> None:
    state.put("limits", "queue_messages_max", number_within(value, 0, UNLIMITED) or UNLIMITED)


def _queued_bytes(state: ImportState, value: str) -> None:
    wanted = number_within(value, 0, 1 << 40) or 1 << 40
    state.put("limits", "queue_bytes_max", max(wanted, 1_024))
    if wanted < 1_024:
        state.note("1024 is the least here")


def _client_expiration(state: ImportState, value: str) -> None:
    unit = EXPIRY_UNITS.get(value[-1:].lower())
    if unit is None:
        raise ValueError(f"is not a number with h, d, w, m or y; {REFUSED_THERE}")
    state.put("limits", "session_expiry_max_s", min(number_within(value[:-1], 0, UNLIMITED) * unit, 4_294_967_295))


# The rest.


def _persistence(state: ImportState, value: str) -> None:
    state.persist(flag(value))


def _persistence_location(state: ImportState, value: str) -> None:
    state.persist_in(_path(state, value))


def _log_dest(state: ImportState, value: str) -> None:
    kind, _, rest = value.partition(" ")
    if kind == "file" and rest.strip():
        state.put("log", "file", _path(state, rest.strip()))
    elif kind not in ("stderr", "stdout"):
        raise ValueError("not carried over; the log goes to standard error")


def _log_type(state: ImportState, value: str) -> None:
    if value not in LEVELS:
        raise ValueError("not carried over; the log has the levels error, warning, info and debug")
    order = ["error", "warning", "info", "debug"]
    current = state.sections.get("log", {}).get("level", "error")
    state.put("log", "level", max(current, LEVELS[value], key=order.index))


def _sys_interval(state: ImportState, value: str) -> None:
    state.put("metrics", "sys_interval_s", number_within(value, 0, 65_535))


def _only(usual: bool, reason: str) -> Take:
    """An option whose usual value needs nothing and whose other has no counterpart."""

    def take(_state: ImportState, value: str) -> None:
        if flag(value) is not usual:
            raise ValueError(reason)

    return take


TAKES: dict[str, Take] = {
    "acl_file": _rules_file("acl_file"),
    "allow_anonymous": _allow_anonymous,
    "allow_zero_length_clientid": _empty_client_id,
    "auto_id_prefix": _auto_id_prefix,
    "bind_address": _bind_address,
    "cafile": _tls_file("cafile"),
    "certfile": _tls_file("certfile"),
    "check_retain_source": _check_retain_source,
    "crlfile": _tls_file("crlfile"),
    "keyfile": _tls_file("keyfile"),
    "listener": _listener,
    "log_dest": _log_dest,
    "log_type": _log_type,
    "max_connections": _max_connections,
    "max_inflight_bytes": _inflight_bytes,
    "max_inflight_messages": _inflight,
    "max_keepalive": _max_keepalive,
    "max_packet_size": _max_packet_size,
    "max_qos": _max_qos,
    "max_queued_bytes": _queued_bytes,
    "max_queued_messages": _queued_messages,
    "max_topic_alias": _max_topic_alias,
    "message_size_limit": _message_size_limit,
    "mount_point": _mount_point,
    "password_file": _rules_file("password_file"),
    "per_listener_settings": _per_listener,
    "persistence": _persistence,
    "persistence_location": _persistence_location,
    "persistent_client_expiration": _client_expiration,
    "port": _port,
    "protocol": _protocol,
    "queue_qos0_messages": _only(False, "not carried over; QoS 0 messages are not queued for disconnected clients"),
    "require_certificate": _require_certificate,
    "retain_available": _retain_available,
    "socket_domain": _socket_domain,
    "sys_interval": _sys_interval,
    "tls_version": _tls_version,
    "upgrade_outgoing_qos": _only(False, "not carried over; an event is delivered with its own QoS at most"),
    "use_identity_as_username": _identity,
    "use_subject_as_username": _subject,
    "use_username_as_clientid": _username_as_clientid,
}
