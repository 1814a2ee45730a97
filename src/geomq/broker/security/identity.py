"""Who a connection is: rules for anonymous clients, certificate names and client ids.

Decides from what the caller already verified; opens no file and checks no password.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from geomq.broker.config.settings import Auth, Listener
from geomq.broker.security.passwords import Entry, Passwords

SEPARATORS = "-_.:/"


class Proof(Enum):
    """What a connection showed when it was let in; a name alone is none."""

    NONE = "none"
    PASSWORD = "password"
    CERTIFICATE = "certificate"
    EXCHANGE = "exchange"


class Identity(NamedTuple):
    """Who a connection is. `secret` is what the password was checked against."""

    user: str | None
    proof: Proof
    secret: Entry | None = None

    @property
    def proved(self) -> bool:
        """Whether it is more than a name."""
        return self.proof is not Proof.NONE


ANONYMOUS = Identity(None, Proof.NONE)


def identity_refusal(identity: Identity, auth: Auth, listener: Listener, passwords: Passwords | None) -> str | None:
    """Why who was let in before may not come in under these settings, or None if it may."""
    user, proof, secret = identity
    if proof in (Proof.CERTIFICATE, Proof.EXCHANGE):
        return None
    if user is not None and passwords is not None:
        entry = passwords.entry(user)
        if entry is None:
            return "the user is not in the password file"
        return None if entry == secret else "the password changed"
    if anonymous_allowed(auth, listener):
        return None
    return "a user name is required" if user is None else "no password file is configured"


def anonymous_allowed(auth: Auth, listener: Listener) -> bool:
    """Whether a client without a user name may use this listener.

    The listener's address decides, not the client's: behind a proxy on this machine every client is local.
    """
    anonymous = listener.anonymous or auth.anonymous
    return anonymous == "always" or (anonymous == "loopback" and listener.loopback)


def empty_client_id_allowed(auth: Auth, listener: Listener) -> bool:
    """Whether a client that has no client id gets one here."""
    return auth.empty_client_id if listener.empty_client_id is None else listener.empty_client_id


def certificate_user(listener: Listener, certificate: Mapping[str, Any] | None) -> str | None:
    """The user that a verified certificate (as ssl's `getpeercert` gives it) speaks for, if it decides."""
    if listener.certificate_user == "none" or not certificate:
        return None
    subject: Sequence[Sequence[tuple[str, str]]] = certificate.get("subject", ())
    pairs = [pair for group in subject for pair in group]
    if listener.certificate_user == "common_name":
        return next((value for key, value in pairs if key == "commonName"), None)
    return ",".join(f"{_SHORT.get(key, key)}={_escape(value)}" for key, value in reversed(pairs)) or None


def client_id_refusal(
    auth: Auth, *, client_id: str, user: str | None, owner: str | None, exists: bool, only_claimed: bool = False
) -> str | None:
    """Why this user may not use this client id, or None if it may.

    `exists` says there is a session under that id, `owner` is the user who opened it (None: anonymous). `only_claimed`
    says that this user proves nothing while the owner did: listeners may differ in what they ask for.
    """
    if auth.client_id == "any":
        return None
    if exists and only_claimed:
        return "the client id belongs to the session of a user who proved to be one"
    if exists and owner != user:
        return "the client id belongs to another user's session"
    if user is None or auth.client_id == "owned":
        return None
    if client_id == user:
        return None
    if auth.client_id == "prefix" and client_id.startswith(user) and client_id[len(user)] in SEPARATORS:
        return None
    if auth.client_id == "prefix":
        return "the client id must be the user name, or start with it and one of - _ . : /"
    return "the client id must equal the user name"


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def _escape(value: str) -> str:
    """A value as RFC 2253 writes it, so that no value can pose as several."""
    escaped = "".join(f"\\{char}" if char in ',+"\\<>;=' else char for char in value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(value) > 1 else escaped
