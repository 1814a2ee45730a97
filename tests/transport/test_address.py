"""Where a broker sends a client."""

import pytest

from geomq.transport.address import Address


@pytest.mark.parametrize(
    ("reference", "host", "port"),
    [
        ("other:1884", "other", 1884),
        ("10.0.0.1:99999", "10.0.0.1", 99_999),
        ("other", "other", 1883),
        ("[::1]:1884", "::1", 1884),
        ("[::1]", "::1", 1883),
        ("::1", "::1", 1883),
        ("other:", "other:", 1883),
    ],
)
def test_a_reference_names_host_and_port(reference: str, host: str, port: int) -> None:
    home = Address("home", 1883, path="/mqtt")
    assert home.sent_to(reference) == Address(host, port, path="/mqtt")
    assert str(home) == "home:1883"
