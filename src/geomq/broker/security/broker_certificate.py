"""What a certificate says of a broker: its one name, and whether it may be either end of a link.

A broker both listens and dials, so its certificate has to be for servers and for clients, in so many words: one that
was made for users or web servers of the same authority is not a broker's. TLS has verified it before; it is read here
because Python does not tell what a certificate is for.
"""

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE, SET, OBJECT_ID, BYTES, EXTENSIONS, DNS_NAME = 0x30, 0x31, 0x06, 0x04, 0xA3, 0x82
TEXTS = (0x0C, 0x13, 0x16)
COMMON_NAME = bytes.fromhex("550403")
ALTERNATIVE_NAMES, KEY_USAGES = bytes.fromhex("551d11"), bytes.fromhex("551d25")
USAGES = {"serverAuth": bytes.fromhex("2b06010505070301"), "clientAuth": bytes.fromhex("2b06010505070302")}
SUBJECT = 4
"""How many elements stand before the subject, besides the version."""


class BrokerCertificate(NamedTuple):
    """Its name, if it has one, and what it is for."""

    name: str | None
    usages: frozenset[bytes]


def certificate_problem(name: str, certificate: bytes) -> str | None:
    """Why the certificate, in DER, is not that of the broker of this name; None if it is."""
    try:
        found = read_certificate(certificate)
    except (ValueError, IndexError):
        return "its certificate cannot be read"
    if found.name != name:
        return f"its certificate names {found.name!r:.80}, not broker {name[:80]!r}"
    missing = [usage for usage, number in USAGES.items() if number not in found.usages]
    return f"its certificate is not for {' and '.join(missing)} (extendedKeyUsage)" if missing else None


def read_certificate(certificate: bytes) -> BrokerCertificate:
    """The common name or, without one, the first DNS name; ValueError or IndexError if it is malformed."""
    ((_, body),) = _elements(certificate)
    (_, to_be_signed), *_ = _elements(body)
    parts = list(_elements(to_be_signed))
    version = parts[0][0] != 0x02
    common = [value for kind, value in _attributes(parts[SUBJECT + version][1]) if kind == COMMON_NAME]
    extensions = dict(_extensions(parts[-1][1])) if parts[-1][0] == EXTENSIONS else {}
    names = common
    if not names and ALTERNATIVE_NAMES in extensions:
        ((_, alternatives),) = _elements(extensions[ALTERNATIVE_NAMES])
        names = [value for tag, value in _elements(alternatives) if tag == DNS_NAME]
    usages: frozenset[bytes] = frozenset()
    if KEY_USAGES in extensions:
        ((_, listed),) = _elements(extensions[KEY_USAGES])
        usages = frozenset(value for tag, value in _elements(listed) if tag == OBJECT_ID)
    if len(common) > 1:
        raise ValueError("a certificate of several names")
    return BrokerCertificate(names[0].decode() if names else None, usages)


def _attributes(names: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and text of everything that a subject says."""
    for tag, group in _elements(names):
        for inner, pair in _elements(group) if tag == SET else ():
            (_, kind), (text, value) = _elements(pair) if inner == SEQUENCE else ((0, b""), (0, b""))
            yield kind, value if text in TEXTS else b"\xff"


def _extensions(wrapped: bytes) -> Iterator[tuple[bytes, bytes]]:
    ((_, listed),) = _elements(wrapped)
    for _, extension in _elements(listed):
        (_, kind), *_, (tag, value) = _elements(extension)
        if tag == BYTES:
            yield kind, value


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of DER elements that follow each other."""
    pos = 0
    while pos < len(data):
        tag, length = data[pos], data[pos + 1]
        pos += 2
        if length > 0x7F:
            size = length & 0x7F
            length, pos = int.from_bytes(data[pos : pos + size]), pos + size
        if not 0 <= length <= len(data) - pos:
            raise ValueError("an element that is cut off")
        yield tag, data[pos : pos + length]
        pos += length
