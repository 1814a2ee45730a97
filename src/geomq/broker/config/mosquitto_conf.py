"""Reads a mosquitto.conf and says the same in GeoMQ's words, with a note for everything that has no such word.

Pure translation: it reads the file and those of its include_dir, starts nothing and writes nothing. The result is
checked as a GeoMQ config before it is handed out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geomq.broker.config.load import parse_config
from geomq.broker.config.text import toml_value
from geomq.errors import UsageError

FILE_BYTES_MAX = 1_048_576
FILES_MAX = 200
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

PLAIN = {
    "acl_file": ("auth", "acl_file"),
    "max_keepalive": ("limits", "keep_alive_max_s"),
    "max_packet_size": ("limits", "packet_bytes_max"),
    "max_topic_alias": ("limits", "topic_alias_maximum"),
    "password_file": ("auth", "password_file"),
    "sys_interval": ("metrics", "sys_interval_s"),
}
LISTENER_PATHS = ("cafile", "certfile", "crlfile", "keyfile")
NEEDLESS = {
    "allow_duplicate_messages": "an event that matches several subscriptions is delivered once",
    "autosave_interval": "every change is saved at once",
    "autosave_on_changes": "every change is saved at once",
    "connection_messages": "connections are logged at level info",
    "log_timestamp": "every line has a timestamp",
    "log_timestamp_format": "every line has a timestamp",
    "persistence_file": "the store is a folder",
    "pid_file": "no PID file is written; use the service manager",
    "set_tcp_nodelay": "always so",
    "user": "the broker runs as whoever starts it",
}
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
FEDERATION_PORT = 7883


@dataclass(slots=True)
class Imported:
    """The TOML text and one note for each line that could not be carried over."""

    toml: str
    notes: list[str]


@dataclass(slots=True)
class _Bridge:
    where: str
    name: str
    note: int
    addresses: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Import:
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    listeners: list[dict[str, Any]] = field(default_factory=list)
    default_listener: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    base: Path = Path()
    anonymous: bool | None = None
    persistence: bool = False
    persistence_location: str | None = None
    bridges: list[_Bridge] = field(default_factory=list)

    def put(self, section: str, key: str, value: Any) -> None:
        self.sections.setdefault(section, {})[key] = value

    @property
    def listener(self) -> dict[str, Any]:
        """The listener that options apply to: the last one begun, or the default one."""
        return self.listeners[-1] if self.listeners else self.default_listener


def import_mosquitto(path: Path) -> Imported:
    """Translate the file at `path`."""
    made = _Import(base=path.absolute().parent)
    for where, key, value in _lines(path):
        try:
            _take(made, where, key, value)
        except ValueError as error:
            made.notes.append(f"{where}: {key} {value}: {error}")
    toml = _finish(made, path)
    parse_config(toml, name=f"the config made from {path}", base=made.base, files=False)
    return Imported(toml, made.notes)


def _lines(path: Path, *, depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Every option as (where, key, value), includes in place of their lines."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot read it: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path}: larger than {FILE_BYTES_MAX} bytes, not a mosquitto.conf")
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        key, _, value = line.strip().partition(" ")
        value = value.strip()
        if not key or key.startswith("#"):
            continue
        if key == "include_dir" and depth == 0:
            for included in _included(path.parent / value):
                yield from _lines(included, depth=1)
        else:
            yield f"{path.name}:{number}", key, value


def _included(folder: Path) -> list[Path]:
    """The .conf files in Mosquitto's order: upper case before lower case of the same letter."""
    try:
        found = [path for path in folder.iterdir() if path.suffix == ".conf"]
    except (OSError, ValueError) as error:  # ValueError for a path that cannot be
        raise UsageError(f"{folder}: cannot read it: {getattr(error, 'strerror', error)}") from None
    return sorted(found, key=lambda path: (path.name.lower(), path.name))[:FILES_MAX]


def _take(made: _Import, where: str, key: str, value: str) -> None:
    if key in NEEDLESS:
        return
    if key == "connection":
        made.bridges.append(_Bridge(where, value, note=len(made.notes)))
        made.notes.append(f"{where}: bridge {value}")
    elif key in PLAIN:
        section, ours = PLAIN[key]
        made.put(section, ours, _path(made, value) if key.endswith("_file") else _number(value))
    elif key in LISTENER_PATHS:
        made.listener[key] = _path(made, value)
    elif key in _SPECIAL:
        _SPECIAL[key](made, value)
    elif made.bridges and (key in BRIDGE_OPTIONS or key.startswith("bridge_")):
        _bridge_option(made.bridges[-1], key, value)
    else:
        raise ValueError("not carried over")


def _bridge_option(bridge: _Bridge, key: str, value: str) -> None:
    if key in ("address", "addresses"):
        bridge.addresses += value.split()
    elif key == "topic":
        bridge.topics.append(value)


def _path(made: _Import, value: str) -> str:
    return str(made.base / value)


def _number(value: str) -> int:
    if not (value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 12):
        raise ValueError("is not a number")
    return int(value)


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("is not true or false")
    return value.lower() == "true"


def _port(made: _Import, value: str) -> None:
    made.default_listener["port"] = _number(value)


def _bind_address(made: _Import, value: str) -> None:
    made.default_listener["host"] = value


def _listener(made: _Import, value: str) -> None:
    port, _, host = value.partition(" ")
    if port == "0":
        made.listeners.append({"skip": True})
        raise ValueError("unix sockets are not carried over")
    made.listeners.append({"port": _number(port)} | ({"host": host.strip()} if host.strip() else {}))


def _protocol(made: _Import, value: str) -> None:
    if value not in ("mqtt", "websockets"):
        made.listener["skip"] = True
        raise ValueError("not carried over")
    made.listener["websocket"] = value == "websockets"


def _max_connections(made: _Import, value: str) -> None:
    if _number(value) > 0:
        made.listener["connections_max"] = _number(value)


def _require_certificate(made: _Import, value: str) -> None:
    made.listener["require_certificate"] = _flag(value)


def _identity(rule: str) -> Callable[[_Import, str], None]:
    def take(made: _Import, value: str) -> None:
        if _flag(value):
            made.listener["certificate_user"] = rule

    return take


def _tls_version(made: _Import, value: str) -> None:
    if value not in ("tlsv1.2", "tlsv1.3"):
        raise ValueError("too old, TLS 1.2 is the oldest accepted")
    made.listener["tls_min"] = value[4:]


def _allow_anonymous(made: _Import, value: str) -> None:
    made.anonymous = _flag(value)


def _persistence(made: _Import, value: str) -> None:
    made.persistence = _flag(value)


def _persistence_location(made: _Import, value: str) -> None:
    made.persistence_location = _path(made, value)


def _inflight(made: _Import, value: str) -> None:
    wanted = _number(value) or 65_535
    made.put("limits", "inflight_messages_max", min(wanted, 65_535))
    made.put("limits", "receive_maximum", min(wanted, 65_535))


def _queued(key: str, unlimited: int) -> Callable[[_Import, str], None]:
    def take(made: _Import, value: str) -> None:
        made.put("limits", key, _number(value) or unlimited)

    return take


def _message_size_limit(made: _Import, value: str) -> None:
    if _number(value):
        made.put("limits", "packet_bytes_max", min(_number(value) + 131_072, 268_435_460))
        raise ValueError(
            "limits the payload in Mosquitto; carried over as a packet size with 128 KiB for everything else"
        )


def _client_expiration(made: _Import, value: str) -> None:
    unit = EXPIRY_UNITS.get(value[-1:].lower())
    if unit is None:
        raise ValueError("is not a number with h, d, w, m or y")
    made.put("limits", "session_expiry_max_s", min(_number(value[:-1]) * unit, 4_294_967_295))


def _username_as_clientid(made: _Import, value: str) -> None:
    if _flag(value):
        made.put("auth", "client_id", "username")
        raise ValueError("clients must now send their user name as client id; the broker does not set it for them")


def _per_listener(_made: _Import, value: str) -> None:
    if _flag(value):
        raise ValueError("access rules hold for all listeners; the last of each was carried over")


def _log_dest(made: _Import, value: str) -> None:
    kind, _, rest = value.partition(" ")
    if kind == "file" and rest.strip():
        made.put("log", "file", _path(made, rest.strip()))
    elif kind not in ("stderr", "stdout"):
        raise ValueError("not carried over; the log goes to standard error")


def _log_type(made: _Import, value: str) -> None:
    if value not in LEVELS:
        raise ValueError("not carried over")
    order = ["error", "warning", "info", "debug"]
    current = made.sections.get("log", {}).get("level", "error")
    made.put("log", "level", max(current, LEVELS[value], key=order.index))


def _only(usual: str, reason: str) -> Callable[[_Import, str], None]:
    """An option whose usual value needs nothing and whose other has no counterpart."""

    def take(_made: _Import, value: str) -> None:
        if value.lower() != usual:
            raise ValueError(reason)

    return take


_SPECIAL: dict[str, Callable[[_Import, str], None]] = {
    "allow_anonymous": _allow_anonymous,
    "allow_zero_length_clientid": _only("true", "empty client ids are always accepted"),
    "bind_address": _bind_address,
    "check_retain_source": _only("true", "not carried over"),
    "listener": _listener,
    "log_dest": _log_dest,
    "log_type": _log_type,
    "max_connections": _max_connections,
    "max_inflight_messages": _inflight,
    "max_qos": _only("2", "not carried over"),
    "max_queued_bytes": _queued("queue_bytes_max", 1 << 40),
    "max_queued_messages": _queued("queue_messages_max", UNLIMITED),
    "message_size_limit": _message_size_limit,
    "per_listener_settings": _per_listener,
    "persistence": _persistence,
    "persistence_location": _persistence_location,
    "persistent_client_expiration": _client_expiration,
    "port": _port,
    "protocol": _protocol,
    "queue_qos0_messages": _only("false", "QoS 0 messages are not queued for disconnected clients"),
    "require_certificate": _require_certificate,
    "retain_available": _only("true", "retained messages are always enabled"),
    "tls_version": _tls_version,
    "upgrade_outgoing_qos": _only("false", "not carried over"),
    "use_identity_as_username": _identity("common_name"),
    "use_subject_as_username": _identity("subject"),
    "use_username_as_clientid": _username_as_clientid,
}


def _finish(made: _Import, path: Path) -> str:
    _settle_security(made)
    made.put("persistence", "enabled", made.persistence)
    if made.persistence:
        if made.persistence_location is not None:
            made.put("persistence", "path", f"{made.persistence_location.rstrip('/')}/geomq-store")
        made.notes.append("persistence: only the settings are carried over, not what Mosquitto has saved")
    if "packet_bytes_max" not in made.sections.get("limits", {}):
        made.notes.append("max_packet_size is not set: GeoMQ refuses packets above 2000000 bytes")
    lines = [f"# Made from {path.name} by geomq import-mosquitto."]
    for listener in _settled_listeners(made):
        lines += ["", "[[listeners]]", *(f"{key} = {toml_value(value)}" for key, value in listener.items())]
    for name, section in made.sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in section.items())]
    for bridge in made.bridges:
        where = ", ".join(bridge.addresses) or "nowhere"
        told = "not carried over; to link GeoMQ brokers, fill in the [[peers]] at the end of the file"
        made.notes[bridge.note] = f"{bridge.where}: bridge {bridge.name} to {where}: {told}"
        lines += ["", *(f"# {line}" for line in _peer(bridge))]
    return "\n".join(lines) + "\n"


def _peer(bridge: _Bridge) -> Iterator[str]:
    """What a bridge was, and the link that may take its place; it goes to the other broker's federation listener."""
    yield f"Mosquitto had a bridge {toml_value(bridge.name)} to {toml_value(bridge.addresses)} with these topics:"
    yield from (f"  {toml_value(topic)}" for topic in bridge.topics)
    yield "If a GeoMQ broker runs there, link to its federation listener:"
    yield "[[peers]]"
    yield f"name = {toml_value(bridge.name)}"
    host, colon, port = (bridge.addresses or ["host"])[0].rpartition(":")
    yield f"address = {toml_value(f'{host if colon else port}:{FEDERATION_PORT}')}"


def _settle_security(made: _Import) -> None:
    """Mosquitto lets anonymous clients in if told so, or on its local default listener."""
    explicit = bool(made.listeners or made.default_listener)
    if made.anonymous is True and explicit:
        made.put("auth", "anonymous", "always")
    elif made.anonymous is False or (explicit and made.anonymous is None):
        made.put("auth", "anonymous", "never")


def _settled_listeners(made: _Import) -> Iterator[dict[str, Any]]:
    first = [made.default_listener] if made.default_listener else []
    for raw in (*first, *made.listeners):
        if raw.pop("skip", False):
            continue
        tls = "certfile" in raw
        websocket = raw.pop("websocket", False)
        kind = ("websocket_tls" if tls else "websocket") if websocket else ("tls" if tls else "tcp")
        if not tls:
            dropped = [
                key for key in ("cafile", "keyfile", "crlfile", "require_certificate", "tls_min") if raw.pop(key, None)
            ]
            if dropped:
                made.notes.append(f"listener: {', '.join(dropped)} without certfile has no effect")
        if not raw.get("require_certificate"):
            raw.pop("certificate_user", None)
        origins = {"origins": ["*"]} if websocket else {}
        yield {"kind": kind, "port": raw.pop("port", 1883)} | raw | origins
