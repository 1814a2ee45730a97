"""What a certificate says of a broker."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.certificates import BOTH, Authority

from geomq.broker.security.broker_certificate import certificate_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    Authority(made)
    return made


def problem(
    folder: Path, name: str, *, subject: str = "/O=us/CN=paris", usages: str = BOTH, names: str = ""
) -> str | None:
    pem, _ = Authority(folder).issue("made", subject=subject, usages=usages, names=names)
    return certificate_problem(name, ssl.PEM_cert_to_DER_cert(pem.read_text()))


def test_a_broker_is_what_its_certificate_names_and_nothing_else(folder: Path) -> None:
    assert problem(folder, "paris") is None
    others = "DNS:localhost, DNS:frankfurt, IP:127.0.0.1"
    assert problem(folder, "paris", names=others) is None
    for name in ("localhost", "frankfurt", "us", "Paris", "paris.", ""):
        assert "names 'paris', not broker" in str(problem(folder, name, names=others))


def test_without_a_common_name_the_first_dns_name_is_the_broker(folder: Path) -> None:
    names = "IP:127.0.0.1, DNS:paris, DNS:localhost"
    assert problem(folder, "paris", subject="/O=us", names=names) is None
    assert "names 'paris', not broker 'localhost'" in str(problem(folder, "localhost", subject="/O=us", names=names))
    assert "names None, not broker 'us'" in str(problem(folder, "us", subject="/O=us"))


def test_a_certificate_of_two_common_names_is_nobodys(folder: Path) -> None:
    for name in ("paris", "rome"):
        assert problem(folder, name, subject="/CN=paris/CN=rome") == "its certificate cannot be read"


@pytest.mark.parametrize(
    ("usages", "missing"),
    [
        ("clientAuth", "serverAuth"),
        ("serverAuth", "clientAuth"),
        ("emailProtection", "serverAuth and clientAuth"),
        ("anyExtendedKeyUsage", "serverAuth and clientAuth"),
        ("", "serverAuth and clientAuth"),
    ],
)
def test_a_broker_is_both_server_and_client(folder: Path, usages: str, missing: str) -> None:
    found = problem(folder, "paris", usages=usages)
    assert found == f"its certificate is not for {missing} (extendedKeyUsage)"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    assert certificate_problem("paris", data) is not None


def test_a_damaged_certificate_is_refused_or_says_the_same(folder: Path) -> None:
    pem, _ = Authority(folder).issue("whole", subject="/CN=paris", names="DNS:localhost")
    whole = ssl.PEM_cert_to_DER_cert(pem.read_text())
    assert certificate_problem("paris", whole) is None
    for length in range(len(whole)):
        assert certificate_problem("paris", whole[:length]) == "its certificate cannot be read"
    for place, byte in enumerate(whole):
        for other in (0, 0xFF, byte ^ 1, byte ^ 0x80):
            damaged = whole[:place] + bytes([other]) + whole[place + 1 :]
            assert certificate_problem("paris", damaged) != ""
