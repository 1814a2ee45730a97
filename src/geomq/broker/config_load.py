"""From a TOML file to a checked Config, or to one line that says which file, section and key is wrong.

Checks everything once, here: types and bounds, unknown keys (with a suggestion), rules between keys, files
that must exist, geometry and topic filters. Relative paths are taken from the folder of the file.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import msgspec

from geomq.broker.config import Cloud, Config, Federation, Listener, Peer, Section, is_loopback
from geomq.broker.config_keys import Key, SectionKeys, sections
from geomq.errors import ConfigError, GeomqError
from geomq.mqtt.topics import check_filter

FILE_BYTES_MAX = 1_048_576
OPTIONS_DEPTH_MAX = 8
TABLES_MAX = 1_000


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read and check the config file at `path`."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{source}: cannot read it: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{source}: larger than {FILE_BYTES_MAX} bytes; that is no config file")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: not UTF-8 text") from None
    return parse_config(text, name=str(source), base=source.absolute().parent)


def default_config() -> Config:
    """The config of a broker started without a file; paths are taken from the working folder."""
    return parse_config("", name="default config", base=Path.cwd())


def parse_config(text: str, *, name: str, base: Path, files: bool = True) -> Config:
    """Check the TOML `text`; `name` is what errors call it, `base` where relative paths start.

    Files it names must be readable unless `files` is false.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None
    return _Reader(name, base, files=files).config(document)


def with_port(config: Config, port: int) -> Config:
    """The config with its first plain listener on `port`, or with one more on localhost if it has none."""
    listeners = list(config.listeners)
    for position, listener in enumerate(listeners):
        if listener.kind == "tcp":
            listeners[position] = msgspec.structs.replace(listener, port=port)
            break
    else:
        listeners.append(Listener(host="localhost", port=port))
    return msgspec.structs.replace(config, listeners=tuple(listeners))


class _Reader:
    def __init__(self, name: str, base: Path, *, files: bool) -> None:
        self.name = name
        self.base = base
        self.files = files

    def fail(self, where: str, what: str) -> NoReturn:
        raise ConfigError(f"{self.name}: {where}: {what}")

    def config(self, document: dict[str, Any]) -> Config:
        known = sections()
        for name, value in document.items():
            if name not in known:
                what = "section" if isinstance(value, dict | list) else "key outside any section"
                raise ConfigError(f"{self.name}: unknown {what} {name!r}{_suggest(name, known)}")
        hints = get_type_hints(Config)
        values: dict[str, Any] = {}
        for name, section in known.items():
            hint = hints[name]
            if section.many:
                if name in document:
                    values[name] = self.tables(section, get_args(hint)[0], document[name])
            else:
                values[name] = self.table(section, hint, document.get(name, {}), section.title)
        config = Config(**values)
        self.check(config)
        return config

    def tables(self, section: SectionKeys, struct: type[Section], value: Any) -> tuple[Section, ...]:
        if not isinstance(value, list):
            self.fail(section.title, f"write {section.title} for each, not [{section.name}]")
        if len(value) > TABLES_MAX:
            self.fail(section.title, f"more than {TABLES_MAX} of them")
        return tuple(
            self.table(section, struct, entry, f"{section.title} #{number}") for number, entry in enumerate(value, 1)
        )

    def table(self, section: SectionKeys, struct: type[Section], value: Any, where: str) -> Section:
        if not isinstance(value, dict):
            self.fail(where, f"expected a table {section.title}")
        keys = {key.name: key for key in section.keys}
        for name in value:
            if name not in keys:
                self.fail(where, f"unknown key {name!r}{_suggest(name, keys) or _elsewhere(name)}")
        for key in section.keys:
            if key.required and key.name not in value:
                self.fail(where, f"{key.name} is missing")
        try:
            made = msgspec.convert(value, struct)
        except msgspec.ValidationError as error:
            reason, _, place = str(error).partition(" - at `$.")
            self.fail(where, f"{place.rstrip('`')}: {_plain(reason)}")
        return self.resolve(section.keys, made, where)

    def resolve(self, keys: Iterable[Key], made: Section, where: str) -> Section:
        absolute: dict[str, str] = {}
        for key in keys:
            value = getattr(made, key.name)
            if not key.path or value is None:
                continue
            if "\0" in value:
                self.fail(where, f"{key.name}: a path cannot contain NUL")
            absolute[key.name] = os.path.normpath(self.base / value)
            if self.files and key.path == "read" and not os.access(absolute[key.name], os.R_OK):
                self.fail(where, f"{key.name}: cannot read {absolute[key.name]}")
        return msgspec.structs.replace(made, **absolute) if absolute else made

    def check(self, config: Config) -> None:
        self.check_listeners(config.listeners)
        if config.admin.enabled and not is_loopback(config.admin.host) and config.admin.token_file is None:
            self.fail("[admin]", "token_file is needed when host is not loopback")
        if not _plain_data(config.routing.options, OPTIONS_DEPTH_MAX):
            self.fail("[routing]", "options: only texts, numbers, true/false, lists and tables, not too deep")
        for topic_filter in config.geo.owntracks_topics:
            try:
                check_filter(topic_filter)
            except GeomqError as error:
                self.fail("[geo]", f"owntracks_topics: {error}")
        self.check_federation(config.broker.name, config.federation, config.peers)
        self.check_cloud(config.cloud)
        self.check_geometry(config)

    def check_listeners(self, listeners: tuple[Listener, ...]) -> None:
        if not listeners:
            self.fail("[[listeners]]", "at least one is needed")
        taken: dict[tuple[str, int], int] = {}
        for number, listener in enumerate(listeners, 1):
            where = f"[[listeners]] #{number}"
            self.check_listener(listener, where)
            address = (listener.host, listener.bind_port)
            if listener.bind_port and address in taken:
                self.fail(where, f"port: {listener.host}:{listener.bind_port} is taken by #{taken[address]}")
            taken[address] = number

    def check_listener(self, listener: Listener, where: str) -> None:
        if listener.tls:
            for key in ("certfile", "keyfile"):
                if getattr(listener, key) is None:
                    self.fail(where, f"{key} is needed for kind {listener.kind!r}")
        else:
            for key in ("certfile", "keyfile", "cafile", "crlfile", "require_certificate"):
                if getattr(listener, key):
                    self.fail(where, f"{key} has no meaning for kind {listener.kind!r}; use a TLS kind")
        if listener.require_certificate and listener.cafile is None:
            self.fail(where, "cafile is needed when require_certificate is true")
        if listener.certificate_user != "none" and not listener.require_certificate:
            self.fail(where, "certificate_user needs require_certificate = true")
        if not listener.websocket and (listener.origins or listener.path):
            key = "origins" if listener.origins else "path"
            self.fail(where, f"{key} has no meaning for kind {listener.kind!r}; use a WebSocket kind")

    def check_federation(self, own: str, federation: Federation, peers: tuple[Peer, ...]) -> None:
        if (federation.certfile is None) != (federation.keyfile is None):
            self.fail("[federation]", "certfile and keyfile go together")
        if federation.certfile is not None and federation.cafile is None:
            self.fail("[federation]", "cafile is needed beside certfile")
        seen = {own}
        for number, peer in enumerate(peers, 1):
            where = f"[[peers]] #{number}"
            if peer.name in seen:
                self.fail(where, f"name: {peer.name!r} is already a broker of this federation")
            seen.add(peer.name)
            if not 1 <= int(peer.address.rpartition(":")[2]) <= 65_535:
                self.fail(where, f"address: no such port in {peer.address!r}")

    def check_cloud(self, cloud: Cloud) -> None:
        if cloud.address is not None and not 1 <= int(cloud.address.rpartition(":")[2]) <= 65_535:
            self.fail("[cloud]", f"address: no such port in {cloud.address!r}")
        for key in ("cafile", "certfile", "keyfile"):
            if getattr(cloud, key) is not None and not cloud.tls:
                self.fail("[cloud]", f"{key} has no meaning without tls = true")
        if (cloud.certfile is None) != (cloud.keyfile is None):
            self.fail("[cloud]", "certfile and keyfile go together")

    def check_geometry(self, config: Config) -> None:
        texts = [
            ("[broker]", "location", config.broker.location),
            ("[federation]", "area", config.federation.area),
        ]
        for number, peer in enumerate(config.peers, 1):
            texts.append((f"[[peers]] #{number}", "location", peer.location))
            texts.append((f"[[peers]] #{number}", "area", peer.area))
        if all(text is None for _, _, text in texts):
            return
        from geomq.geo import parse_fence, parse_location  # loads numpy and shapely: only if needed

        for where, key, text in texts:
            if text is None:
                continue
            try:
                parse_location(text) if key == "location" else parse_fence(text)
            except GeomqError as error:
                self.fail(where, f"{key}: {error}")


def _suggest(name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _elsewhere(name: str) -> str:
    for section in sections().values():
        if any(key.name == name for key in section.keys):
            return f"; it belongs in {section.title}"
    return ""


def _plain(reason: str) -> str:
    """msgspec's wording without its backquotes and type jargon."""
    reason = reason.replace("`", "")
    for jargon, word in (("str", "a text"), ("int", "a whole number"), ("bool", "true or false")):
        reason = re.sub(rf"\b{jargon}\b", word, reason)
    return reason.replace("array", "a list").replace("object", "a table").replace("null", "nothing")


def _plain_data(value: object, depth: int) -> bool:
    if depth < 0:
        return False
    if isinstance(value, dict):
        return all(_plain_data(entry, depth - 1) for entry in value.values())
    if isinstance(value, list):
        return all(_plain_data(entry, depth - 1) for entry in value)
    return isinstance(value, str | int | bool) or (isinstance(value, float) and value - value == 0.0)
