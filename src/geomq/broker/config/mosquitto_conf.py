"""Says in GeoMQ's words what a mosquitto.conf says, with a line for everything that has no such word.

Pure translation: it reads the file and those of its include_dir, starts nothing and writes nothing. The result is
checked as a GeoMQ config before it is handed out. Access that the file does not give is never given: what could not be
carried over and might open it is told apart from the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomq.broker.config.load import parse_config
from geomq.broker.config.mosquitto_file import Option, read_options
from geomq.broker.config.mosquitto_options import (
    ABOUT_ACCESS,
    BRIDGE_OPTIONS,
    NEEDLESS,
    OPENING,
    PRIVATE,
    TAKES,
    UNSUPPORTED,
)
from geomq.broker.config.mosquitto_state import Bridge, ImportedListener, ImportState, OpensAccessError, Rules
from geomq.broker.config.text import toml_value

FEDERATION_PORT = 7883
TLS_KEYS = ("cafile", "certfile", "keyfile", "crlfile", "require_certificate", "tls_min")


@dataclass(slots=True)
class Imported:
    """The TOML text, and a line for each option that could not be carried over: `opening` has those without which
    somebody might have more access than before."""

    toml: str
    notes: list[str]
    opening: list[str]


def import_mosquitto(path: Path) -> Imported:
    """Translate the file at `path`."""
    state = ImportState(path.absolute().parent)
    for option in read_options(path):
        _take_or_tell(state, option)
    toml = _finish(state, path)
    parse_config(toml, name=f"the config made from {path}", base=state.base, files=False)
    return Imported(toml, state.notes, state.opening)


def _take_or_tell(state: ImportState, option: Option) -> None:
    where, key, value = option
    shown = f" {value}" if value and not key.startswith(PRIVATE) else ""
    state.begin(f"{where}: {key}{shown}")
    try:
        _take(state, option)
    except ValueError as error:
        lines = state.opening if isinstance(error, OpensAccessError) or key in ABOUT_ACCESS else state.notes
        is_skipped = key in ("listener", "protocol") and state.listener.skip
        (state.notes if is_skipped else lines).append(f"{state.line}: {error}")


def _take(state: ImportState, option: Option) -> None:
    where, key, value = option
    if key in NEEDLESS:
        return
    if key == "connection":
        state.bridges.append(Bridge(where, value, note=len(state.notes)))
        state.notes.append(f"{where}: bridge {value}")
    elif key in TAKES:
        TAKES[key](state, value)
    elif key in OPENING or key.startswith(PRIVATE):
        raise OpensAccessError(OPENING.get(key, "plugins are not supported"))
    elif key in UNSUPPORTED:
        raise ValueError(UNSUPPORTED[key])
    elif key in BRIDGE_OPTIONS or key.startswith("bridge_"):
        if not state.bridges:
            raise ValueError("stands before the first connection")
        state.bridges[-1].take(key, value)
    elif key == "include_dir":
        raise OpensAccessError("stands in a file that is included itself, and is not followed")
    else:
        raise OpensAccessError("is not an option of Mosquitto 2.0")


def _finish(state: ImportState, path: Path) -> str:
    listeners = [listener for listener in state.all_listeners() if not listener.skip]
    if not state.per_listener:
        _settle_general(state)
    else:
        state.put("auth", "anonymous", "never")
    tables = [_settled(state, listener) for listener in listeners]
    if not tables:
        state.opening.append(f"{path.name}: none of its listeners could be carried over")
        state.put("auth", "anonymous", "never")
    elif state.local_only and state.opens_default:
        state.notes.append("no listener is named: GeoMQ serves this machine alone, Mosquitto 2.0 all interfaces")
    _settle_persistence(state)
    if "packet_bytes_max" not in state.sections.get("limits", {}):
        state.notes.append("max_packet_size is not set: GeoMQ refuses packets above 2000000 bytes")
    lines = [f"# Made from {path.name} by geomq import-mosquitto."]
    for table in tables:
        lines += ["", "[[listeners]]", *(f"{key} = {toml_value(value)}" for key, value in table.items())]
    for name, section in state.sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in section.items())]
    for bridge in state.bridges:
        where = ", ".join(bridge.addresses) or "nowhere"
        told = "not carried over; to link GeoMQ brokers, fill in the [[peers]] at the end of the file"
        state.notes[bridge.note] = f"{bridge.where}: bridge {bridge.name} to {where}: {told}"
        lines += ["", *(f"# {line}" for line in _peer(bridge))]
    return "\n".join(lines) + "\n"


def _settle_persistence(state: ImportState) -> None:
    state.put("persistence", "enabled", state.persistence)
    if state.persistence:
        if state.persistence_location is not None:
            state.put("persistence", "path", f"{state.persistence_location.rstrip('/')}/geomq-store")
        state.notes.append("persistence: only the settings are carried over, not what Mosquitto has saved")


def _peer(bridge: Bridge) -> Iterator[str]:
    """What a bridge was, and the link that may take its place; it goes to the other broker's federation listener."""
    yield f"Mosquitto had a bridge {toml_value(bridge.name)} to {toml_value(bridge.addresses)} with these topics:"
    yield from (f"  {toml_value(topic)}" for topic in bridge.topics)
    yield "If a GeoMQ broker runs there, link to its federation listener:"
    yield "[[peers]]"
    yield f"name = {toml_value(bridge.name)}"
    host, colon, port = (bridge.addresses or ["host"])[0].rpartition(":")
    yield f"address = {toml_value(f'{host if colon else port}:{FEDERATION_PORT}')}"


def _anonymous(state: ImportState, rules: Rules) -> str:
    """Mosquitto lets anonymous clients in if told so, or where it serves this machine alone."""
    if state.local_only:
        return "never" if rules.anonymous is False else "loopback"
    return "always" if rules.anonymous else "never"


def _settle_general(state: ImportState) -> None:
    rules = state.general
    for key, value in rules.files.items():
        state.put("auth", key, value)
    state.put("auth", "anonymous", _anonymous(state, rules))
    if not rules.empty_client_id:
        state.put("auth", "empty_client_id", False)


def _settled(state: ImportState, listener: ImportedListener) -> dict[str, Any]:
    """The listener as a table."""
    keys = dict(listener.keys)
    tls = "certfile" in keys and "keyfile" in keys
    if tls:
        _settle_certificates(state, listener, keys)
    else:
        _drop_tls(state, listener, keys)
    kind = ("websocket_tls" if tls else "websocket") if listener.websocket else ("tls" if tls else "tcp")
    table = {"kind": kind, "port": keys.pop("port", 1883)}
    if state.local_only:
        keys["host"] = "localhost"
    if listener.websocket:
        keys["origins"] = ["*"]
    if state.per_listener:
        keys["anonymous"] = _anonymous(state, listener.rules)
        keys |= listener.rules.files
        if not listener.rules.empty_client_id:
            keys["empty_client_id"] = False
    return table | keys


def _settle_certificates(state: ImportState, listener: ImportedListener, keys: dict[str, Any]) -> None:
    named = "common_name" if listener.identity else "subject" if listener.subject else None
    if keys.get("require_certificate") and "cafile" not in keys:
        state.opening.append(f"{listener.where['certfile']}: require_certificate needs a cafile")
        del keys["require_certificate"]
    elif named and not keys.get("require_certificate"):
        line = listener.where["certificate_user"]
        state.opening.append(f"{line}: without require_certificate Mosquitto lets nobody in here")
    elif named:
        keys["certificate_user"] = named


def _drop_tls(state: ImportState, listener: ImportedListener, keys: dict[str, Any]) -> None:
    """Mosquitto does not encrypt either, unless it has a certificate and its key."""
    dropped = [key for key in TLS_KEYS if keys.pop(key, None)]
    if dropped:
        where = next((line for key, line in listener.where.items() if key in dropped), "listener")
        text = f"{', '.join(dropped)} without {'keyfile' if 'certfile' in dropped else 'certfile'} has no effect"
        (state.opening if "certfile" in dropped or "keyfile" in dropped else state.notes).append(f"{where}: {text}")
