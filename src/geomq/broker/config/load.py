"""From a TOML file to a checked Config, or to one line that says which file, section and key is wrong.

Reading tables is `toml_tables`' business; this owns the rules between keys, geometry and topic filters. Everything is
checked once, here. Relative paths are taken from the folder of the file.
"""

import os
from pathlib import Path
from typing import NoReturn

import msgspec

from geomq.broker.config.federation import Cloud, Federation, Peer
from geomq.broker.config.settings import Config, Listener, is_loopback
from geomq.broker.config.toml_tables import TableReader, read_text
from geomq.errors import ConfigError, GeomqError
from geomq.mqtt.codec.topics import check_filter

OPTIONS_DEPTH_MAX = 8


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read and check the config file at `path`."""
    source = Path(path)
    return parse_config(read_text(source), name=str(source), base=source.absolute().parent)


def default_config() -> Config:
    """The config of a broker started without a file; paths are taken from the working folder."""
    return parse_config("", name="default config", base=Path.cwd())


def parse_config(text: str, *, name: str, base: Path, files: bool = True) -> Config:
    """Check the TOML `text`; `name` is what errors call it, `base` where relative paths start.

    Files it names must be readable unless `files` is false.
    """
    config = TableReader(Config, name, base, files=files).read(text)
    _Checker(name).check(config)
    return config


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


class _Checker:
    """The rules between keys."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, where: str, what: str) -> NoReturn:
        raise ConfigError(f"{self.name}: {where}: {what}")

    def check(self, config: Config) -> None:
        self.check_listeners(config.listeners)
        if config.admin.enabled and not is_loopback(config.admin.host) and config.admin.token_file is None:
            self.fail("[admin]", "token_file is needed when host is not loopback")
        if not _plain_data(config.routing.options, OPTIONS_DEPTH_MAX):
            self.fail(
                "[routing]", "options: only strings, numbers, true/false, lists and tables, not nested too deeply"
            )
        for topic_filter in config.geo.owntracks_topics:
            try:
                check_filter(topic_filter)
            except GeomqError as error:
                self.fail("[geo]", f"owntracks_topics: {error}")
        for number, rule in enumerate(config.topics, 1):
            try:
                check_filter(rule.topic_filter)
            except GeomqError as error:
                self.fail(f"[[topics]] #{number}", f"topic_filter: {error}")
        self.check_federation(config.broker.name, config.federation, config.peers)
        self.check_cloud(config.cloud)
        if config.routing.strategy == "broadcast_groups" and config.cloud.address is None:
            self.fail("[cloud]", "broadcast_groups needs address: groups reach each other through the cloud broker")
        self.check_geometry(config)

    def check_listeners(self, listeners: tuple[Listener, ...]) -> None:
        if not listeners:
            self.fail("[[listeners]]", "at least one is required")
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
                    self.fail(where, f"{key} does not apply to kind {listener.kind!r}; use a TLS kind")
        if listener.require_certificate and listener.cafile is None:
            self.fail(where, "cafile is needed when require_certificate is true")
        if listener.certificate_user != "none" and not listener.require_certificate:
            self.fail(where, "certificate_user needs require_certificate = true")
        if not listener.websocket and (listener.origins or listener.path):
            key = "origins" if listener.origins else "path"
            self.fail(where, f"{key} does not apply to kind {listener.kind!r}; use a WebSocket kind")

    def check_federation(self, own: str, federation: Federation, peers: tuple[Peer, ...]) -> None:
        if (federation.certfile is None) != (federation.keyfile is None):
            self.fail("[federation]", "certfile and keyfile must be set together")
        if federation.certfile is not None and federation.cafile is None:
            self.fail("[federation]", "certfile needs cafile")
        for key in ("seed", "address"):
            address = getattr(federation, key)
            if address is not None and not 1 <= int(address.rpartition(":")[2]) <= 65_535:
                self.fail("[federation]", f"{key}: invalid port in {address!r}")
        if federation.admit is True:
            self.fail("[federation]", 'admit: name the brokers that may join, as in ["rome", "edge-*"], or say false')
        if federation.seed is not None and peers:
            self.fail("[federation]", "seed and [[peers]] exclude each other")
        if federation.seed is not None and federation.port is None:
            self.fail("[federation]", "seed needs port, so that other brokers can connect")
        if federation.grid_deg is not None and 90 % federation.grid_deg:
            self.fail("[federation]", f"grid_deg: {federation.grid_deg} does not divide 90")
        seen = {own}
        for number, peer in enumerate(peers, 1):
            where = f"[[peers]] #{number}"
            if peer.name in seen:
                self.fail(where, f"name: {peer.name!r} is already a broker of this federation")
            seen.add(peer.name)
            if not 1 <= int(peer.address.rpartition(":")[2]) <= 65_535:
                self.fail(where, f"address: invalid port in {peer.address!r}")

    def check_cloud(self, cloud: Cloud) -> None:
        if cloud.address is not None and not 1 <= int(cloud.address.rpartition(":")[2]) <= 65_535:
            self.fail("[cloud]", f"address: invalid port in {cloud.address!r}")
        for key in ("cafile", "certfile", "keyfile"):
            if getattr(cloud, key) is not None and not cloud.tls:
                self.fail("[cloud]", f"{key} needs tls = true")
        if (cloud.certfile is None) != (cloud.keyfile is None):
            self.fail("[cloud]", "certfile and keyfile must be set together")

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


def _plain_data(value: object, depth: int) -> bool:
    if depth < 0:
        return False
    if isinstance(value, dict):
        return all(_plain_data(entry, depth - 1) for entry in value.values())
    if isinstance(value, list):
        return all(_plain_data(entry, depth - 1) for entry in value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    return isinstance(value, str) or (isinstance(value, float) and value - value == 0.0)
