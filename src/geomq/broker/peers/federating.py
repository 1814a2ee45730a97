"""From config to federation: which brokers there are, what their areas are, how they trust each other.

Every broker of a federation must come to the same list in the same order, so brokers are ordered by name.
"""

import ssl
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from geomq.broker.config.settings import Config
from geomq.broker.peers.channel import Credentials
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.security.broker_certificate import certificate_problem
from geomq.broker.security.certificates import Trust, read_trust
from geomq.errors import ConfigError, GeometryError
from geomq.geo import parse_location
from geomq.routing.core.model import BrokerId, Edition
from geomq.routing.federation.description import BrokerEntry, Description, in_order

KEY_BYTES_MIN = 16


def description_of(config: Config) -> Description:
    """The federation as the config describes it."""
    entries = [entry_of(config)]
    for peer in config.peers:
        if any(entry.name == peer.name for entry in entries):
            raise ConfigError(f"two brokers of the federation are named {peer.name}")
        entries.append(BrokerEntry(peer.name, _place(peer.location), peer.address, peer.area))
    edition = Edition(config.federation.version, "")
    return Description(
        in_order(entries),
        strategy=config.routing.strategy,
        options=dict(config.routing.options),
        grid_deg=config.federation.grid_deg,
        edition=edition,
        routing=edition,
    )


def entry_of(config: Config) -> BrokerEntry:
    """This broker's own entry."""
    section = config.federation
    address = section.address
    if address is None and section.port and section.host != "*":
        address = f"{section.host}:{section.port}"
    return BrokerEntry(config.broker.name, _place(config.broker.location), address, section.area)


def admits(config: Config, name: str) -> bool:
    """Whether a broker of this name may join with this one as its seed."""
    admit = config.federation.admit
    return isinstance(admit, tuple) and any(fnmatchcase(name, pattern) for pattern in admit)


def _place(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        lat, lon = parse_location(text)
    except GeometryError as error:
        raise ConfigError(f"location: {error}") from None
    return lat, lon


def address_of(entry: BrokerEntry) -> PeerAddress | None:
    """Where a broker is dialled."""
    if entry.address is None:
        return None
    host, _, port = entry.address.rpartition(":")
    return PeerAddress(host.strip("[]"), int(port))


def peers_of(description: Description, me: BrokerId) -> dict[BrokerId, PeerAddress | None]:
    """Where each other broker is reached."""
    return {BrokerId(entry.name): address_of(entry) for entry in description.brokers if entry.name != me}


def client_address(listening: Sequence[tuple[str, str, int]]) -> str | None:
    """Where clients of other brokers are sent if the config does not say: the first listener with an address of its
    own, plain MQTT before WebSockets."""
    for kinds in (("tcp", "tls"), ("websocket", "websocket_tls")):
        for kind, host, port in listening:
            if kind in kinds and host not in ("*", "0.0.0.0", "::", ""):
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return None


def credentials_of(config: Config, platform: Platform = SYSTEM) -> Credentials:
    """The shared key if there is one; certificates otherwise; neither only on loopback."""
    federation = config.federation
    if federation.key_file is not None:
        try:
            key = Path(federation.key_file).read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"cannot read {federation.key_file}: {error.strerror}") from None
        if len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"the key in {federation.key_file} is shorter than {KEY_BYTES_MIN} bytes")
        return Credentials(config.broker.name, key, platform)
    if federation.certfile is None and not _on_loopback(config):
        raise ConfigError("[federation] needs key_file or certfile, keyfile and cafile, except on loopback")
    return Credentials(config.broker.name, None, platform)


def _on_loopback(config: Config) -> bool:
    dialled = [*(peer.address for peer in config.peers), *([config.federation.seed] if config.federation.seed else [])]
    hosts = [config.federation.host, *(address.rpartition(":")[0] for address in dialled)]
    return all(host.startswith("127.") or host in ("localhost", "::1", "[::1]") for host in hosts)


def tls_of(config: Config) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """The TLS settings for listening and for dialling, both with mutual certificates; none without certfile."""
    section = config.federation
    if section.certfile is None:
        return None, None
    if section.keyfile is None or section.cafile is None:
        raise ConfigError("[federation] certfile needs keyfile and cafile")
    listen = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(section.cafile))
    listen.verify_mode = ssl.CERT_REQUIRED
    dial = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(section.cafile))
    dial.check_hostname = False  # the broker's name is checked after the handshake, in both directions
    for context in (listen, dial):
        try:
            context.load_cert_chain(section.certfile, section.keyfile)
            if section.crlfile is not None:
                context.load_verify_locations(section.crlfile)
                context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"[federation] certificate: {error}") from None
    problem = certificate_problem(config.broker.name, _first_certificate(section.certfile))
    if problem is not None:
        raise ConfigError(f"[federation] certfile {section.certfile}: {problem}")
    return listen, dial


class LinkTls:
    """The TLS settings for links as the files said when they were last read, and whose certificates they trust."""

    def __init__(self, config: Config) -> None:
        self.listen, self.dial = tls_of(config)
        self.trust = trust_of(config)

    def renew(self, config: Config) -> None:
        """Read the files again, for connections from now on; ConfigError leaves everything as it was."""
        (listen, dial), trust = tls_of(config), trust_of(config)
        self.listen, self.dial, self.trust = listen, dial, trust


def trust_of(config: Config) -> Trust:
    """Whose certificates of brokers count, and which were taken back."""
    section = config.federation
    return Trust() if section.certfile is None else read_trust(section.cafile, section.crlfile)


def _first_certificate(path: str) -> bytes:
    """The broker's own, which comes before those that signed it."""
    _, header, rest = Path(path).read_text(errors="replace").partition(ssl.PEM_HEADER)
    body, footer, _ = rest.partition(ssl.PEM_FOOTER)
    try:
        return ssl.PEM_cert_to_DER_cert(header + body + footer)
    except ValueError:
        raise ConfigError(f"[federation] certfile {path}: not a certificate in PEM") from None
