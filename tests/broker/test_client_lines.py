"""What a whole broker logs about its clients: who comes, who goes, who is refused, each with the reason."""

import asyncio
import logging
from pathlib import Path

import pytest
from msgspec import structs
from tests.broker.federated import until
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.settings import Auth, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.security.passwords import set_password
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connect, Disconnect, Pingreq
from geomq.mqtt.codec.types import V311

pytestmark = pytest.mark.anyio

CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
    limits=Limits(connect_timeout_s=1.0, connections_per_address_max=3),
)


class Lines:
    """What was logged about clients."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="geomq.broker")
        self._caplog = caplog

    def __call__(self, kind: str) -> list[tuple[str | None, str]]:
        wanted = [each for each in self._caplog.records if each.getMessage() == f"client {kind}"]
        return [(getattr(each, "client", None), getattr(each, "reason", "")) for each in wanted]

    async def expect(self, kind: str, client_id: str | None, reason: str = "") -> None:
        await until(lambda: (client_id, reason) in self(kind))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return Lines(caplog)


async def test_comings_and_goings_have_their_reasons(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(CONFIG) as broker:
        left = await client(broker, "polite")
        left.send(Disconnect())
        await lines.expect("disconnected", "polite", "left")
        await (await client(broker, "broken")).drop()
        await lines.expect("disconnected", "broken", "connection lost")
        await client(broker, "twice")
        await client(broker, "twice", version=V311)
        await lines.expect("disconnected", "twice", "session taken over")
        wrong = await client(broker, "wrong")
        wrong.send(Connect("wrong"))
        await until(lambda: any(name == "wrong" for name, _ in lines("disconnected")))
        (said,) = [reason for name, reason in lines("disconnected") if name == "wrong"]
        assert "CONNECT" in said
        assert [name for name, _ in lines("connected")] == ["polite", "broken", "twice", "twice", "wrong"]
        record = next(each for each in caplog.records if getattr(each, "client", "") == "twice")
        fields = record.__dict__
        assert (fields["address"], fields["version"], fields["session"]) == ("127.0.0.1", "5", "new")
        await drop_all()
    assert broker.core.counts.clients_connected == broker.core.counts.clients_disconnected == 5


async def test_refusals_have_their_reasons_and_a_look_at_the_port_has_no_line(lines: Lines, tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "ann", b"right", iterations=10)
    auth = Auth(anonymous="never", password_file=str(tmp_path / "passwords"))
    async with Broker(structs.replace(CONFIG, auth=auth)) as broker:
        await (await Probe.open(broker.port)).drop()
        for name, user, password in (("guess", "ann", b"wrong"), ("nobody", None, None)):
            probe = await Probe.open(broker.port)
            probe.send(Connect(name, username=user, password=password))
            await until(lambda name=name: any(each == name for each, _ in lines("refused")))  # type: ignore[misc]
        await lines.expect("refused", "guess", "wrong user name or password")
        early = await Probe.open(broker.port)
        early.send(Pingreq())
        await until(lambda: any(name is None and "CONNECT" in why for name, why in lines("refused")))
        await Probe.open(broker.port)
        await lines.expect("refused", None, "CONNECT took too long")
        await asyncio.gather(*(Probe.open(broker.port) for _ in range(4)))
        await lines.expect("refused", None, "too many connections from its address")
        await drop_all()
    assert lines("connected") == lines("disconnected") == []
    assert not any(why == "connection lost" for _, why in lines("refused"))


async def test_a_broker_that_stops_says_so_of_each_client(lines: Lines) -> None:
    async with Broker(CONFIG) as broker:
        await client(broker, "c")
    await drop_all()
    assert lines("disconnected") == [("c", "server shutting down")]
