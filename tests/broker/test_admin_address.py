import pytest

from geomq.broker.admin_address import check_address
from geomq.errors import UsageError


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9883", "http://localhost:1", "http://[::1]:1", "https://rome.example"]
)
def test_a_token_stays_on_this_machine_or_goes_encrypted(url: str) -> None:
    check_address(url, "token")
    with pytest.raises(UsageError, match=r"^http://rome.example:9883 would send the token in the clear; use https"):
        check_address("http://rome.example:9883", "token")
    check_address("http://rome.example:9883", None)


@pytest.mark.parametrize(
    "url", ["", "rome", "ftp://rome", "file:///etc", "http://", "http://a:99999", "http://[::1", "http://a:0"]
)
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(UsageError, match=r" is no address of an admin API, such as http://127.0.0.1:9883$"):
        check_address(url, None)
