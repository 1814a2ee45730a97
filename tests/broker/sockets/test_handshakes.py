"""Clients whose TLS handshake fails are told why, and so is the log: real sockets."""

import asyncio
import logging
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.certificates import Authority
from tests.broker.federated import until

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.broker.sockets import handshakes
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def broker_of(authority: Authority, version: str = "1.2") -> AsyncIterator[Broker]:
    certificate, key = authority.issue("server")
    listener = Listener(
        kind="tls",
        host="127.0.0.1",
        port=0,
        certfile=str(certificate),
        keyfile=str(key),
        cafile=str(authority.certificate),
        crlfile=str(authority.revoke()),
        require_certificate=True,
        tls_min=version,  # type: ignore[arg-type]
    )
    config = Config(listeners=(listener,), persistence=Persistence(enabled=False), metrics=Metrics(sys_interval_s=0))
    async with Broker(config) as broker:
        yield broker


def context_of(authority: Authority, shown: tuple[Path, Path] | None, newest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.check_hostname = False
    context.maximum_version = newest
    if shown is not None:
        context.load_cert_chain(*shown)
    return context


def alert_of(port: int, context: ssl.SSLContext) -> str:
    """What a client is told that goes on to send CONNECT as soon as it may."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        try:
            with context.wrap_socket(plain) as encrypted:
                for _ in range(4):
                    encrypted.sendall(encode(Connect("c"), V5))
                encrypted.recv(100)
        except ssl.SSLError as error:
            return error.reason or str(error)
    return "nothing"


def expired(authority: Authority) -> tuple[Path, Path]:
    """A certificate of the day before yesterday."""
    certificate, key = authority.issue("old")
    dates = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
    signing = ("-config", "ca.cnf", "-policy", "any", "-cert", "ca.pem", "-keyfile", "ca.key", "-batch", "-notext")
    (authority.folder / "ca.cnf").write_text(
        (authority.folder / "ca.cnf").read_text()
        + "new_certs_dir = .\nrand_serial = yes\n[any]\ncommonName = supplied\n"
    )
    words = ("openssl", "ca", *signing, *dates, "-in", "old.csr", "-out", "old.pem")
    subprocess.run(words, check=True, capture_output=True, cwd=authority.folder)
    return certificate, key


ALERTS = {
    "missing": ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE", "peer did not return"),
    "revoked": ("SSLV3_ALERT_CERTIFICATE_REVOKED", "SSLV3_ALERT_CERTIFICATE_REVOKED", "certificate revoked"),
    "expired": ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_EXPIRED", "certificate has expired"),
    "foreign": ("TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_UNKNOWN_CA", "unable to get local issuer certificate"),
}


@pytest.mark.parametrize("trouble", ALERTS)
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2], ids=["1.3", "1.2"])
async def test_a_refused_certificate_is_named_to_the_client_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: str, newest: ssl.TLSVersion
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    issued = {
        "missing": None,
        "revoked": authority.issue("revoked"),
        "expired": expired(authority),
        "foreign": Authority(tmp_path / "other").issue("foreign"),
    }
    async with broker_of(authority) as broker:
        if trouble == "revoked":
            authority.revoke("revoked")
            broker.reload(broker.core.config)
        before = len(broker.parts.handlers.connections)
        caplog.set_level(logging.INFO, logger="geomq")
        logging.getLogger("geomq").propagate = True
        told = await asyncio.to_thread(alert_of, broker.port, context_of(authority, issued[trouble], newest))
        new, old, logged = ALERTS[trouble]
        assert told == (new if newest == ssl.TLSVersion.TLSv1_3 else old)
        assert f"client at 127.0.0.1: TLS refused: {logged}" in caplog.text
        await until(lambda: len(broker.parts.handlers.connections) == before)


async def test_plain_bytes_are_refused_and_the_log_stays_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_of(Authority(tmp_path)) as broker:
        caplog.set_level(logging.INFO, logger="geomq")
        logging.getLogger("geomq").propagate = True
        for _ in range(25):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read(1)
            writer.close()
        await until(lambda: not broker.parts.handlers.connections)
        assert caplog.text.count("TLS refused: http request") == handshakes.LINES_MAX
        monkeypatch.setattr(handshakes, "LINES_S", 0.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read(1)
        writer.close()
        assert "http request (and 15 more before)" in caplog.text


async def test_who_sends_on_after_its_handshake_failed_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "IGNORED_BYTES_MAX", 10_000)
    async with broker_of(Authority(tmp_path)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(b"\x16\x03\x01\0\x04\x01\0\0\0")
        assert (await reader.read(100))[:1] == b"\x15"  # the alert
        with pytest.raises(ConnectionError):
            await _write_on(writer)
        await until(lambda: not broker.parts.handlers.connections)
        writer.close()


async def _write_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(bytes(1_000))
        await writer.drain()
        await asyncio.sleep(0.01)
