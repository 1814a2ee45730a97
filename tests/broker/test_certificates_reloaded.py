"""A broker whose certificate files change while clients are connected."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.certificates import Authority
from tests.broker.federated import until
from tests.broker.probes import Probe, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.errors import ConfigError
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio


class Site:
    """A broker, its authority, and clients with certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.users = {name: self.authority.issue(name) for name in ("alice", "bob")}
        self.certificate, self.key = self.authority.issue("first")
        self.crl = self.authority.revoke()
        listener = Listener(
            kind="tls",
            host="127.0.0.1",
            port=0,
            certfile=str(self.certificate),
            keyfile=str(self.key),
            cafile=str(self.authority.certificate),
            crlfile=str(self.crl),
            require_certificate=True,
            certificate_user="common_name",
        )
        config = Config(
            listeners=(listener,), persistence=Persistence(enabled=False), metrics=Metrics(sys_interval_s=0)
        )
        self.broker = Broker(config)

    def reload(self) -> None:
        self.broker.reload(self.broker.core.config)

    async def connect(self, user: str) -> Probe:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.check_hostname = False
        context.load_cert_chain(*self.users[user])
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port, ssl=context)
        probe = Probe(reader, writer, V5, "127.0.0.1", self.broker.port)
        probe.send(Connect(user))
        assert (await probe.expect(Connack)).reason == ReasonCode.SUCCESS
        assert self.broker.core.clients[user].user == user
        return probe


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    made = Site(folder)
    async with made.broker:
        yield made
        await drop_all()


def shown(probe: Probe) -> Any:
    """The name in the certificate that the broker shows."""
    certificate: dict[str, Any] = probe._writer.get_extra_info("ssl_object").getpeercert()
    return dict(pair for group in certificate["subject"] for pair in group)["commonName"]


async def test_a_reload_ends_connections_whose_certificate_was_revoked(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        alice, bob = await made.connect("alice"), await made.connect("bob")
        waiting = await Probe.open(made.broker.port)
        await until(lambda: len(made.broker.parts.handlers.connections) == 3)
        made.authority.revoke("bob")
        made.reload()
        with pytest.raises(Closed):
            await waiting.receive()
        assert (await bob.expect(Disconnect)).reason == ReasonCode.NOT_AUTHORIZED
        assert await alice.silent()
        with pytest.raises((Closed, OSError)):
            await made.connect("bob")
        await made.connect("alice")
        assert made.broker.core.counts.connections_revoked == 1


async def test_a_reload_ends_connections_whose_authority_is_gone(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        alice = await made.connect("alice")
        text = made.authority.certificate.read_text()
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other").certificate.read_text()
        made.authority.certificate.write_text(text + other)
        made.reload()
        assert await alice.silent()
        made.authority.certificate.write_text(other)
        made.reload()
        assert (await alice.expect(Disconnect)).reason == ReasonCode.NOT_AUTHORIZED


async def test_a_renewed_certificate_is_shown_after_a_reload_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        alice = await made.connect("alice")
        assert shown(alice) == "first"
        for path, renewed in zip((made.certificate, made.key), made.authority.issue("second"), strict=True):
            path.write_bytes(renewed.read_bytes())
        made.reload()
        assert shown(await made.connect("bob")) == "second"
        made.certificate.write_text("no certificate")
        with pytest.raises(ConfigError):
            made.reload()
        assert shown(await made.connect("bob")) == "second"
        assert await alice.silent()
