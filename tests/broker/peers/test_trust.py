"""Who may join a federation, and who is believed to be a broker."""

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
from tests.broker.certificates import BOTH, Authority
from tests.broker.federated import configs, federation, until

from geomq.broker.config.settings import Config
from geomq.broker.peers.channel import Credentials
from geomq.broker.peers.federating import tls_of
from geomq.broker.peers.peer_settings import PeerAddress
from geomq.broker.peers.seeking import Seeker
from geomq.broker.server import Broker
from geomq.errors import ConfigError
from geomq.routing.federation.description import BrokerEntry

pytestmark = pytest.mark.anyio
BROKERS = ("columbus", "frankfurt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of two brokers."""
    made = tmp_path_factory.mktemp("federation")
    authority = Authority(made)
    for name in BROKERS:
        authority.issue(name, names=f"DNS:{name}, DNS:localhost, IP:127.0.0.1")
    return made


def secured(folder: Path, **more: object) -> dict[str, Config]:
    """Two brokers that are linked by certificates."""
    return {
        name: msgspec.structs.replace(
            config,
            federation=msgspec.structs.replace(
                config.federation,
                certfile=str(folder / f"{name}.pem"),
                keyfile=str(folder / f"{name}.key"),
                cafile=str(folder / "ca.pem"),
                **more,
            ),
        )
        for name, config in configs("flood_events", brokers=2).items()
    }


async def joins(folder: Path, name: str, seed: Config, pem: Path, key: Path) -> bool:
    """Whether one with this certificate is taken in by a seed, whatever it may be for."""
    found: list[bytes] = []

    def heard(description: bytes) -> bool:
        found.append(description)
        return True

    dial = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    dial.check_hostname = False
    dial.load_cert_chain(pem, key)
    entry = BrokerEntry(name, (41.9, 12.5), "127.0.0.1:9")
    address = PeerAddress("127.0.0.1", seed.federation.port or 0)
    seeker = Seeker(address, entry, Credentials(name, None), dial_tls=lambda: dial, found=heard)
    seeker.start()
    try:
        await asyncio.wait_for(asyncio.shield(until_true(found)), 1.5)
    except TimeoutError:
        return False
    finally:
        seeker.stop()
    return True


async def until_true(found: list[bytes]) -> None:
    while not found:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "common_name", "usages", "admit", "joined"),
    [
        ("rome", "rome", BOTH, ("rome",), True),
        ("rome", "rome", BOTH, ("oslo", "r*"), True),
        ("rome", "rome", BOTH, False, False),
        ("rome", "rome", BOTH, (), False),
        ("rome", "rome", BOTH, ("Rome", "rom", "ome", "?rome"), False),
        ("rome", "rome", "clientAuth", ("rome",), False),
        ("rome", "rome", "", ("rome",), False),
        ("rome", "mallory", BOTH, ("rome",), False),
        ("localhost", "rome", BOTH, ("*",), False),
    ],
    ids=[
        "named",
        "by pattern",
        "by default",
        "empty list",
        "others named",
        "a client's certificate",
        "a certificate for anything",
        "another's name",
        "a second name",
    ],
)
async def test_nobody_joins_who_is_not_named_by_broker_and_certificate(
    folder: Path, name: str, common_name: str, usages: str, admit: bool | tuple[str, ...], joined: bool
) -> None:
    pem, key = Authority(folder).issue("asking", subject=f"/CN={common_name}", usages=usages, names="DNS:localhost")
    configured = secured(folder, admit=admit)
    async with federation(configured) as brokers:
        seed = brokers["frankfurt"]
        assert await joins(folder, name, configured["frankfurt"], pem, key) is joined
        assert (name in seed.parts.membership.addresses) is joined
        assert bool(seed.core.counts.brokers_refused) is not joined
        assert all(broker.linked for broker in brokers.values()) is not joined


async def test_by_default_nobody_is_admitted() -> None:
    assert Config().federation.admit is False


async def test_whom_a_running_broker_admits_changes_at_reload(folder: Path) -> None:
    pem, key = Authority(folder).issue("asking", subject="/CN=rome")
    configured = secured(folder)
    async with federation(configured) as brokers:
        seed = brokers["columbus"]
        assert not await joins(folder, "rome", configured["columbus"], pem, key)
        seed.reload(replaced(configured["columbus"], admit=("rome",)))
        assert await joins(folder, "rome", configured["columbus"], pem, key)


def replaced(config: Config, **more: object) -> Config:
    return msgspec.structs.replace(config, federation=msgspec.structs.replace(config.federation, **more))


@pytest.mark.parametrize(
    ("subject", "usages", "problem"),
    [("/CN=columbus", "clientAuth", "not for serverAuth"), ("/CN=rome", BOTH, "names 'rome', not broker 'columbus'")],
)
async def test_a_broker_does_not_start_with_a_certificate_that_no_peer_would_take(
    folder: Path, subject: str, usages: str, problem: str
) -> None:
    pem, key = Authority(folder).issue("wrong", subject=subject, usages=usages)
    config = replaced(secured(folder)["columbus"], certfile=str(pem), keyfile=str(key))
    with pytest.raises(ConfigError, match=problem):
        tls_of(config)
    with pytest.raises(ConfigError, match=problem):
        await Broker(config).start()


async def test_a_reload_ends_links_with_brokers_whose_certificate_was_revoked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in BROKERS:
        authority.issue(name)
    crl = authority.revoke()
    configured = secured(tmp_path, crlfile=str(crl))
    async with federation(configured) as brokers:
        columbus = brokers["columbus"]
        columbus.reload(configured["columbus"])
        assert columbus.linked
        authority.revoke("frankfurt")
        columbus.reload(configured["columbus"])
        await until(lambda: not columbus.linked)
        await asyncio.sleep(0.5)  # long enough to dial again
        assert not columbus.linked


async def test_a_reload_takes_up_new_certificates_for_links(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in BROKERS:
        authority.issue(name)
    configured = secured(tmp_path, crlfile=str(authority.revoke()))
    async with federation(configured) as brokers:
        authority.revoke("frankfurt")
        brokers["columbus"].reload(configured["columbus"])
        await until(lambda: not brokers["columbus"].linked)
        authority.issue("frankfurt")
        brokers["frankfurt"].reload(configured["frankfurt"])
        await until(lambda: all(broker.linked for broker in brokers.values()))
        assert brokers["columbus"].linked


async def test_certificates_that_cannot_be_read_at_a_reload_leave_the_links_as_they_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in BROKERS:
        authority.issue(name)
    configured = secured(tmp_path)
    async with federation(configured) as brokers:
        (tmp_path / "columbus.pem").write_text("nonsense")
        with pytest.raises(ConfigError):
            brokers["columbus"].reload(configured["columbus"])
        assert brokers["columbus"].linked
