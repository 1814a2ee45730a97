"""From config to federation: which brokers there are, what their areas are, how they trust each other.

Every broker of a federation must come to the same list in the same order, so brokers are ordered by name.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path

from geomq.broker.config import Config
from geomq.broker.peer_channel import Credentials
from geomq.broker.peering import PeerAddress
from geomq.errors import ConfigError, GeometryError
from geomq.geo import Areas, Fence, NearestAreas, PolygonAreas, parse_fence, parse_location
from geomq.routing.federation import Broker, Federation
from geomq.routing.model import BrokerId

KEY_BYTES_MIN = 16


def federation_of(config: Config) -> Federation:
    """All brokers that the config names, this one included."""
    me = BrokerId(config.broker.name)
    place = None if config.broker.location is None else parse_location(config.broker.location)
    if not config.peers:
        return Federation.alone(me, place)
    brokers = {me: (place, config.federation.area)}
    for peer in config.peers:
        if BrokerId(peer.name) in brokers:
            raise ConfigError(f"two brokers of the federation are called {peer.name}")
        at = None if peer.location is None else parse_location(peer.location)
        brokers[BrokerId(peer.name)] = (at, peer.area)
    places: list[Broker] = []
    for name in sorted(brokers):
        location = brokers[name][0]
        if location is None:
            raise ConfigError(f"broker {name} of the federation needs a location")
        places.append(Broker(name, location))
    return Federation(places, _areas(places, {name: area for name, (_, area) in brokers.items()}))


def _areas(brokers: list[Broker], texts: dict[BrokerId, str | None]) -> Areas:
    """The areas given for all brokers, or the places nearest to each."""
    given = {name: text for name, text in texts.items() if text is not None}
    try:
        if not given:
            return NearestAreas([broker.location for broker in brokers])
        missing = [broker.id for broker in brokers if broker.id not in given]
        if missing:
            raise ConfigError(f"areas are given for some brokers but not for {', '.join(missing)}")
        fences: list[Fence] = [parse_fence(given[broker.id]) for broker in brokers]
        return PolygonAreas(fences)
    except GeometryError as error:
        raise ConfigError(f"areas of the federation: {error}") from None


def peers_of(config: Config) -> dict[BrokerId, PeerAddress | None]:
    """Where each peer is reached."""
    addresses: dict[BrokerId, PeerAddress | None] = {}
    for peer in config.peers:
        host, _, port = peer.address.rpartition(":")
        addresses[BrokerId(peer.name)] = PeerAddress(host.strip("[]"), int(port))
    return addresses


def client_address(listening: Sequence[tuple[str, str, int]]) -> str | None:
    """Where clients of other brokers are sent if the config does not say: the first listener with an address of its
    own, plain MQTT before WebSockets."""
    for kinds in (("tcp", "tls"), ("websocket", "websocket_tls")):
        for kind, host, port in listening:
            if kind in kinds and host not in ("*", "0.0.0.0", "::", ""):
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return None


def credentials_of(config: Config) -> Credentials:
    """The shared key if there is one; certificates otherwise; neither only on loopback."""
    federation = config.federation
    if federation.key_file is not None:
        try:
            key = Path(federation.key_file).read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"cannot read {federation.key_file}: {error.strerror}") from None
        if len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"the key in {federation.key_file} is shorter than {KEY_BYTES_MIN} bytes")
        return Credentials(config.broker.name, key)
    if federation.certfile is None and not _on_loopback(config):
        raise ConfigError("[federation] needs key_file or certfile, keyfile and cafile, except on loopback")
    return Credentials(config.broker.name, None)


def _on_loopback(config: Config) -> bool:
    hosts = [config.federation.host, *(peer.address.rpartition(":")[0] for peer in config.peers)]
    return all(host.startswith("127.") or host in ("localhost", "::1", "[::1]") for host in hosts)


def tls_of(config: Config) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """The TLS settings for listening and for dialling, both with mutual certificates; none without certfile."""
    section = config.federation
    if section.certfile is None:
        return None, None
    if section.keyfile is None or section.cafile is None:
        raise ConfigError("[federation] certfile needs keyfile and cafile beside it")
    listen = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(section.cafile))
    listen.verify_mode = ssl.CERT_REQUIRED
    dial = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(section.cafile))
    dial.check_hostname = False  # the broker's name is checked after the handshake, in both directions
    for context in (listen, dial):
        try:
            context.load_cert_chain(section.certfile, section.keyfile)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"[federation] certificate: {error}") from None
    return listen, dial
