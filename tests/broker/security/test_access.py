"""Which files go for which listener, and what is known of clients whose listener is gone."""

from pathlib import Path

from geomq.broker.config.settings import Auth, Config, Listener
from geomq.broker.security.access import SOURCES_MAX
from geomq.broker.security.passwords import hash_password
from geomq.broker.server import load_security

PUBLIC, LOCAL, THIRD = (Listener(host="*", port=port) for port in (1883, 1884, 1885))


def files(tmp_path: Path) -> tuple[str, str, str]:
    (tmp_path / "users").write_text(f"anna:{hash_password(b'x', iterations=10)}\n")
    (tmp_path / "narrow").write_text("user anna\ntopic readwrite anna/#\n")
    (tmp_path / "wide").write_text("topic readwrite #\nuser anna\ntopic readwrite #\n")
    return tuple(str(tmp_path / name) for name in ("users", "narrow", "wide"))  # type: ignore[return-value]


def test_a_listener_has_its_own_files_else_those_for_all(tmp_path: Path) -> None:
    users, narrow, wide = files(tmp_path)
    public = Listener(host="*", port=1883, password_file=users, acl_file=narrow)
    config = Config(listeners=(public, LOCAL), auth=Auth(acl_file=wide))
    security = load_security(config)
    assert security.passwords_at(public) is not None
    assert security.passwords_at(LOCAL) is None
    assert not security.rights("anna", "c", public).may_write("other")
    assert security.rights("anna", "c", LOCAL).may_write("other")
    assert security.rights(None, "c", LOCAL).may_write("other")


def test_a_listener_is_known_again_by_its_address_unless_two_have_the_same(tmp_path: Path) -> None:
    _, narrow, _ = files(tmp_path)
    first, second = (Listener(host="127.0.0.1", port=0, acl_file=acl) for acl in (narrow, None))
    named = Listener(host="127.0.0.1", port=1883)
    security = load_security(Config(listeners=(first, second, named)))
    assert security.listener_at(named.place) is named
    for place in (first.place, "elsewhere:1883", None):
        assert security.listener_at(place) is None


def test_who_came_by_a_listener_that_is_gone_writes_nothing_while_listeners_have_rules_of_their_own(
    tmp_path: Path,
) -> None:
    _, narrow, _ = files(tmp_path)
    gone = load_security(Config(listeners=(Listener(host="*", port=1883, acl_file=narrow),))).rights("anna", "c", None)
    assert not gone.may_write("anna/x")
    assert gone.may_read("anna/x")
    for listeners in ((LOCAL,), (Listener(host="*", port=1883, password_file=files(tmp_path)[0]),)):
        assert load_security(Config(listeners=listeners)).rights("anna", "c", None).all_allowed


def test_rights_of_sources_are_remembered_for_a_bounded_number(tmp_path: Path) -> None:
    _, narrow, _ = files(tmp_path)
    security = load_security(Config(listeners=(PUBLIC,), auth=Auth(acl_file=narrow)))
    first = security.rights_of_source("anna", "c", PUBLIC.place)
    assert first.may_write("anna/x")
    assert security.rights_of_source("anna", "c", PUBLIC.place) is first
    for number in range(SOURCES_MAX):
        security.rights_of_source(None, f"c{number}", PUBLIC.place)
    assert security.rights_of_source("anna", "c", PUBLIC.place) is not first
