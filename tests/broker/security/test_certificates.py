"""Which client certificates are still good when the files change."""

import ssl
from pathlib import Path

import pytest
from tests.broker.certificates import Authority

from geomq.broker.security.certificates import Trust, certificate_key, read_trust
from geomq.errors import ConfigError


def _der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_revoked_certificates_are_found_by_issuer_and_number(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good, bad, worse = (authority.issue(name)[0] for name in ("good", "bad", "worse"))
    ca = str(authority.certificate)
    empty = read_trust(ca, str(authority.revoke()))
    assert not empty.revoked
    full = read_trust(ca, str(authority.revoke("bad", "worse")))
    assert len(full.revoked) == 2
    for certificate, reason in (
        (good, None),
        (bad, "the certificate is revoked"),
        (worse, "the certificate is revoked"),
    ):
        assert full.refusal(_der(certificate), empty) == reason
    (tmp_path / "other").mkdir()
    foreign = Authority(tmp_path / "other").issue("bad")[0]
    assert certificate_key(_der(foreign)) not in full.revoked


def test_the_number_is_the_one_that_openssl_shows(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("c")[0]
    shown = ssl._ssl._test_decode_cert(str(certificate))["serialNumber"]  # type: ignore[attr-defined]
    assert int.from_bytes(certificate_key(_der(certificate))[1]) == int(shown, 16)


def test_an_authority_less_ends_and_one_more_does_not(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    old, new = Authority(tmp_path).certificate, Authority(tmp_path / "new").certificate
    certificate = _der(old)
    both = tmp_path / "both.pem"
    both.write_text(f"some words\n{old.read_text()}\n{new.read_text()}")
    one, two = read_trust(str(old), None), read_trust(str(both), None)
    assert (len(one.authorities), len(two.authorities)) == (1, 2)
    assert two.refusal(certificate, one) is None
    assert one.refusal(certificate, two) == "the authorities that sign certificates changed"


def test_files_that_cannot_be_understood_are_one_line(tmp_path: Path) -> None:
    assert read_trust(None, None) == Trust()
    with pytest.raises(ConfigError, match="cannot read it"):
        read_trust(str(tmp_path / "missing"), None)
    whole = Authority(tmp_path).revoke().read_text().splitlines()
    for lines in (whole[:2] + whole[-1:], [whole[0], "MAA=", whole[-1]], [whole[0], "MA==", whole[-1]]):
        (tmp_path / "bad.pem").write_text("\n".join(lines))
        with pytest.raises(ConfigError, match="a revocation list is malformed"):
            read_trust(None, str(tmp_path / "bad.pem"))
