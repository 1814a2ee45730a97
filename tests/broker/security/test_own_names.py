"""Which Host headers name this machine itself."""

import pytest

from geomq.broker.security.own_names import is_loopback_name


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9001", "127.0.0.1", "127.0.0.2:80", "[::1]", "[::1]:9001"])
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback_name(host)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a@localhost", "::1", "localhost:"],
)
def test_any_other_name_may_have_been_pointed_here(host: str | None) -> None:
    assert not is_loopback_name(host)
