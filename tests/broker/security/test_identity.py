"""Who may connect without a name, whom a certificate names, and who may use which client id."""

from typing import Literal

import pytest

from geomq.broker.config.settings import Auth, Listener
from geomq.broker.security.identity import anonymous_allowed, certificate_user, client_id_refusal

CERTIFICATE = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Acme, Inc."),),
        (("commonName", "device 7"),),
    )
}


def test_anonymous_clients_are_let_in_on_loopback_listeners_only() -> None:
    local, public = Listener(host="localhost"), Listener()
    assert anonymous_allowed(Auth(), local)
    assert not anonymous_allowed(Auth(), public)
    assert anonymous_allowed(Auth(anonymous="always"), public)
    assert not anonymous_allowed(Auth(anonymous="never"), local)


def test_a_certificate_names_the_user_when_the_listener_says_so() -> None:
    assert certificate_user(Listener(), CERTIFICATE) is None
    by_name = Listener(certificate_user="common_name")
    assert certificate_user(by_name, CERTIFICATE) == "device 7"
    assert certificate_user(by_name, None) is None
    assert certificate_user(by_name, {"subject": ()}) is None
    assert certificate_user(Listener(certificate_user="subject"), CERTIFICATE) == "CN=device 7,O=Acme\\, Inc.,C=DE"


def test_no_certificate_value_can_pose_as_several() -> None:
    def subject(*pairs: tuple[str, str]) -> str | None:
        return certificate_user(Listener(certificate_user="subject"), {"subject": tuple((p,) for p in pairs)})

    assert subject(("organizationName", "x"), ("commonName", "a")) != subject(("commonName", "a,O=x"))
    assert subject(("commonName", " a ")) == "CN=\\ a\\ "


@pytest.mark.parametrize(
    ("rule", "client_id", "user", "owner", "exists", "allowed"),
    [
        ("any", "x", "alice", "bob", True, True),
        ("owned", "x", "alice", "alice", True, True),
        ("owned", "x", "alice", "bob", True, False),
        ("owned", "x", "alice", None, True, False),
        ("owned", "x", None, "bob", True, False),
        ("owned", "x", None, None, True, True),
        ("owned", "x", "alice", None, False, True),
        ("username", "alice", "alice", None, False, True),
        ("username", "alice-1", "alice", None, False, False),
        ("username", "alice", "alice", "bob", True, False),
        ("prefix", "alice", "alice", None, False, True),
        ("prefix", "alice-1", "alice", None, False, True),
        ("prefix", "alice2", "alice", None, False, False),
        ("prefix", "bob-1", "alice", None, False, False),
    ],
)
def test_client_ids_are_bound_to_users(
    rule: Literal["any", "owned", "username", "prefix"],
    client_id: str,
    user: str | None,
    owner: str | None,
    exists: bool,
    allowed: bool,
) -> None:
    refusal = client_id_refusal(Auth(client_id=rule), client_id=client_id, user=user, owner=owner, exists=exists)
    assert (refusal is None) == allowed
