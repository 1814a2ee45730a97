import pytest

from geomq.broker.operations.admin_address import check_address
from geomq.cli.peers import Admin as Federation
from geomq.dashboard.admin_client import AdminClient
from geomq.errors import UsageError
from geomq.pipeline.recent import Admin


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9883", "http://localhost:1", "http://[::1]:1", "https://rome.example"]
)
def test_a_token_stays_on_this_machine_or_goes_encrypted(url: str) -> None:
    check_address(url, "token")
    with pytest.raises(UsageError, match=r"^http://rome.example:9883 would send the token unencrypted; use https"):
        check_address("http://rome.example:9883", "token")
    check_address("http://rome.example:9883", None)


@pytest.mark.parametrize(
    "url", ["", "ro me:1:2", "ftp://rome", "file:///etc", "http://", "http://a:99999", "http://[::1", "http://a:0"]
)
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(UsageError, match=r" is not the address of an admin API, such as http://127.0.0.1:9883$"):
        check_address(url, None)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:9883", "http://127.0.0.1:9883"),
        ("localhost:9883", "http://localhost:9883"),
        ("rome", "http://rome"),
        ("https://rome:9883", "https://rome:9883"),
    ],
)
def test_an_address_may_leave_out_http(address: str, url: str) -> None:
    assert check_address(address, None) == url
    assert str(Admin(address, None)) == AdminClient(address).url == url
    assert Federation(address, None)._root == f"{url}/api/v1/federation"
