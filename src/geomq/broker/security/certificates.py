"""What the files of a listener say about client certificates: whose signature counts, and which were taken back.

TLS checks all of it at the handshake; this is for connections that are there when the files change.
"""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from geomq.errors import ConfigError

_INTEGER, _SEQUENCE = 0x02, 0x30
_TIMES = (0x17, 0x18)
_VERSION = 0xA0
_PEM = re.compile(rb"-----BEGIN (CERTIFICATE|TRUSTED CERTIFICATE|X509 CRL)-----.*?-----END \1-----", re.DOTALL)

Certificate = tuple[bytes, bytes]
"""A certificate by its issuer's name and its number, both as DER."""


class Trust(NamedTuple):
    """Of one listener."""

    authorities: frozenset[bytes] = frozenset()
    revoked: frozenset[Certificate] = frozenset()

    def refusal(self, certificate: bytes, before: "Trust") -> str | None:
        """Why a certificate (DER) that was good `before` may not be now, or None if it is."""
        if before.authorities - self.authorities:
            return "the authorities that sign certificates changed"
        return "the certificate is revoked" if certificate_key(certificate) in self.revoked else None


def read_trust(cafile: str | None, crlfile: str | None) -> Trust:
    """Read the files, or raise ConfigError."""
    authorities = frozenset(_blocks(cafile, "CERTIFICATE")) if cafile is not None else frozenset()
    lists = _blocks(crlfile, "X509 CRL") if crlfile is not None else ()
    try:
        return Trust(authorities, frozenset(key for each in lists for key in _revoked(each)))
    except ValueError:
        raise ConfigError(f"{crlfile}: a revocation list is malformed") from None


def certificate_key(certificate: bytes) -> Certificate:
    """What a revocation list calls a certificate; ValueError if it is none."""
    parts = _parts(_first(_first(certificate)))
    if parts and parts[0].tag == _VERSION:
        del parts[0]
    number, _how_signed, issuer, *_ = parts
    return issuer.content, number.content


def _blocks(path: str, kind: str) -> Iterator[bytes]:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    for block in _PEM.finditer(data):
        if block[1].decode().endswith(kind):
            yield ssl.PEM_cert_to_DER_cert(
                re.sub(rb"(BEGIN|END) [A-Z0-9 ]+", rb"\1 CERTIFICATE", block[0]).decode("ascii", "replace")
            )


class _Part(NamedTuple):
    tag: int
    content: bytes


def _parts(data: bytes) -> list[_Part]:
    """The elements of DER that stand one after the other; ValueError if they are cut short."""
    found, pos = [], 0
    while pos < len(data):
        tag, length, pos = data[pos], int.from_bytes(data[pos + 1 : pos + 2]), pos + 2
        if length & 0x80:
            wide = length & 0x7F
            length, pos = int.from_bytes(data[pos : pos + wide]), pos + wide
        if pos + length > len(data):
            raise ValueError("cut short")
        found.append(_Part(tag, data[pos : pos + length]))
        pos += length
    return found


def _first(data: bytes) -> bytes:
    """What is inside the first element."""
    found = _parts(data)
    if not found:
        raise ValueError("nothing there")
    return found[0].content


def _revoked(revocation_list: bytes) -> Iterator[Certificate]:
    """The entries of a list: after an optional version, how it is signed, who by, and one or two times."""
    parts = _parts(_first(_first(revocation_list)))
    if parts and parts[0].tag == _INTEGER:
        del parts[0]
    _how_signed, issuer, time, *rest = parts
    if time.tag not in _TIMES:
        raise ValueError("not a revocation list")
    rest = [part for part in rest if part.tag not in _TIMES]
    if rest and rest[0].tag == _SEQUENCE:
        for entry in _parts(rest[0].content):
            yield issuer.content, _first(entry.content)
