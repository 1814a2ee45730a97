"""The HTTP server under the admin API and the dashboard: what it says when it cannot start."""

import asyncio
import socket
from pathlib import Path

import pytest
from starlette.applications import Starlette

from geomq.broker.operations.http_server import Certificate, HttpServer
from geomq.errors import ConfigError


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = HttpServer(Starlette(), "127.0.0.1", port, what="the dashboard")
        with pytest.raises(ConfigError) as refused:
            asyncio.run(server.start())
    assert str(refused.value) == f"the dashboard cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_certificate_that_is_none_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    for certificate in (Certificate(bad, bad), Certificate(tmp_path / "missing.pem", None)):
        with pytest.raises(ConfigError, match="the dashboard certificate: "):
            HttpServer(Starlette(), "127.0.0.1", 0, what="the dashboard", certificate=certificate)


def test_it_serves_until_it_is_stopped() -> None:
    async def main() -> int:
        server = HttpServer(Starlette(), "127.0.0.1", 0, what="it")
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = int((await reader.readline()).split()[1])
        writer.close()
        await server.stop()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", server.port)
        return status

    assert asyncio.run(main()) == 404
