"""TLS settings go to another process and mean the same there; files that are no good are named in one line."""

import ssl
from pathlib import Path

import msgspec
import pytest
from tests.broker.certificates import Authority

from geomq.broker.config.settings import Listener
from geomq.broker.sockets.tls import TlsSettings, settings_of, tls_context
from geomq.errors import ConfigError


def test_settings_mean_the_same_in_another_process(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("broker")
    listener = Listener(
        kind="tls",
        certfile=str(certificate),
        keyfile=str(key),
        cafile=str(tmp_path / "ca.pem"),
        tls_min="1.3",
        require_certificate=True,
    )
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(settings_of(listener)), type=TlsSettings)
    for settings in (listener, sent):
        context = tls_context(settings)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_a_file_that_is_missing_is_an_error_of_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^listener on port 8883: No such file or directory$"):
        tls_context(Listener(kind="tls", certfile="/no/such.pem", keyfile="/no/such.key"))
