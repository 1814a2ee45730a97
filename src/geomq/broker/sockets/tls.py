"""The server's side of TLS, made from files."""

import ssl
from typing import Protocol

import msgspec

from geomq.broker.sockets.handshakes import ServerContext
from geomq.errors import ConfigError


class TlsFiles(Protocol):
    """What a listener says about it."""

    @property
    def bind_port(self) -> int: ...
    @property
    def certfile(self) -> str | None: ...
    @property
    def keyfile(self) -> str | None: ...
    @property
    def cafile(self) -> str | None: ...
    @property
    def crlfile(self) -> str | None: ...
    @property
    def require_certificate(self) -> bool: ...
    @property
    def tls_min(self) -> str: ...


class TlsSettings(msgspec.Struct, frozen=True):
    """The same, to be sent to another process."""

    bind_port: int
    certfile: str | None
    keyfile: str | None
    cafile: str | None
    crlfile: str | None
    require_certificate: bool
    tls_min: str


def settings_of(files: TlsFiles) -> TlsSettings:
    return TlsSettings(*[getattr(files, name) for name in TlsSettings.__struct_fields__])


def tls_context(listener: TlsFiles) -> ssl.SSLContext:
    """The server side TLS settings of a listener, or ConfigError."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    minimum = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[listener.tls_min]
    context.minimum_version = minimum
    try:
        context.load_cert_chain(listener.certfile or "", listener.keyfile)
        if listener.cafile is not None:
            context.load_verify_locations(listener.cafile)
            context.verify_mode = ssl.CERT_REQUIRED if listener.require_certificate else ssl.CERT_OPTIONAL
        if listener.crlfile is not None:
            context.load_verify_locations(listener.crlfile)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"listener on port {listener.bind_port}: {first_line(error)}") from None
    return context


def first_line(error: OSError) -> str:
    """What the system says, short."""
    return (error.strerror or str(error) or type(error).__name__).splitlines()[0]
