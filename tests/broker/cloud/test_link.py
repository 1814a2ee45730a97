"""Broadcast groups of real brokers with a real Mosquitto as cloud."""

import asyncio
import logging
import random
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import SITES, federation, free_ports, until
from tests.broker.mosquitto_cloud import (
    MosquittoCloud,
    cloud_configs,
    groups,
    join,
    mosquitto,
    needs_mosquitto,
)
from tests.broker.test_federation_crash import Process, Receiver, publish, until_heard, until_more

from geomq.broker.cloud import link as cloud_link
from geomq.broker.config import settings
from geomq.broker.config.settings import Config
from geomq.broker.config.text import config_text
from geomq.broker.local_federation import CLOUD, local_configs
from geomq.broker.server import Broker
from geomq.client import Client
from geomq.geo import Circle, Location
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.sim.oracle import Oracle

pytestmark = [pytest.mark.anyio, needs_mosquitto]

SPOTS = [Location(48.9, 2.4), Location(50.0, 8.0), Location(40.0, -83.0), Location(-34.0, 151.0), Location(0.0, 0.0)]
TWO_GROUPS: dict[str, Any] = {"formation": "fixed", "groups": {"columbus": [], "frankfurt": ["paris", "sydney"]}}
QUICK: dict[str, Any] = {
    "announce_ms": 100,
    "expire_ms": 400,
    "silence_ms": 800,
    "answer_ms": 800,
    "request_probability": 1,
    "lcm": {"frankfurt": 5, "paris": 3, "sydney": 2},
    "join_ms": 500,
}


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of a test come back to the cloud sooner than those of a network."""
    monkeypatch.setattr(cloud_link, "GRACE_S", 1.5)


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[MosquittoCloud]:
    async with mosquitto(tmp_path) as running:
        yield running


def strategy(broker: Broker) -> BroadcastGroups:
    assert isinstance(broker.core.node.strategy, BroadcastGroups)
    return broker.core.node.strategy


def leader(broker: Broker) -> str:
    return strategy(broker).seat.leader


def linked(*brokers: Broker) -> bool:
    return all(broker.cloud is not None and broker.cloud.up for broker in brokers)


async def quiet(*brokers: Broker) -> None:
    """Wait until links are up and what was said to the cloud has arrived there."""
    await until(lambda: linked(*brokers))
    await asyncio.sleep(0.3)


def set_apart(brokers: dict[str, Broker], name: str, latency_ms: float = 1000.0) -> None:
    """Let every probe of the links of one broker say that it is far away."""
    for broker in brokers.values():
        node = broker.core.node

        inner, me = node.strategy.latency_measured, node.me

        def measured(peer: BrokerId, ms: float, *, now: float, inner: Any = inner, me: BrokerId = me) -> None:
            inner(peer, latency_ms if name in (peer, me) else ms, now=now)

        setattr(node.strategy, "latency_measured", measured)  # noqa: B010


async def check_with_oracle(brokers: dict[str, Broker]) -> None:
    dice, oracle = random.Random(7), Oracle()
    async with AsyncExitStack() as stack:
        names = [f"c{number}" for number in range(8)]
        ports = [broker.port for broker in brokers.values()]
        clients = {name: await join(stack, ports[i % len(ports)], name) for i, name in enumerate(names)}
        for name, listening in clients.items():
            place = dice.choice(SPOTS)
            await listening.client.move(*place, qos=1)
            oracle.observe(ClientMoved(ClientId(name), place))
            for topic_filter in dice.sample(["a/x", "a/+", "b", "#", "+/x"], 2):
                fence = dice.choice([None, Circle(dice.choice(SPOTS), 700_000.0), Circle(SPOTS[0], 9_000_000.0)])
                await listening.client.subscribe(topic_filter, within=fence, qos=1)
                oracle.observe(ClientSubscribed(ClientId(name), topic_filter, fence))
        await quiet(*brokers.values())
        expected: dict[str, set[bytes]] = {name: set() for name in names}
        for number in range(40):
            publisher, topic = dice.choice(names), dice.choice(["a/x", "a/y", "b", "c/x"])
            fence = dice.choice([None, Circle(dice.choice(SPOTS), 700_000.0)])
            payload = str(number).encode()
            await clients[publisher].client.publish(topic, payload, to=fence, qos=1)
            receivers = oracle.observe(ClientPublished(ClientId(publisher), topic, fence))
            assert receivers is not None
            for receiver in receivers:
                expected[receiver].add(payload)
        await until(lambda: all(set(clients[n].got) == expected[n] for n in names))
        await asyncio.sleep(0.2)
        assert all(len(listening.got) == len(set(listening.got)) for listening in clients.values())


@pytest.mark.parametrize("anyio_backend", ["asyncio", ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"])
async def test_fixed_groups_deliver_what_the_oracle_says(cloud: MosquittoCloud) -> None:
    async with groups(cloud, brokers=4, **TWO_GROUPS) as brokers:
        await check_with_oracle(brokers)


async def test_live_groups_form_and_deliver_what_the_oracle_says(cloud: MosquittoCloud) -> None:
    async with groups(cloud, brokers=4, **QUICK) as brokers:
        set_apart(brokers, "columbus")
        await until(lambda: all(leader(brokers[name]) == "frankfurt" for name in ("frankfurt", "paris", "sydney")))
        assert leader(brokers["columbus"]) == "columbus"
        await check_with_oracle(brokers)
        assert leader(brokers["columbus"]) == "columbus"


async def test_without_a_group_the_cloud_relays(cloud: MosquittoCloud) -> None:
    async with groups(cloud, formation="fixed", join_ms=0) as brokers:
        await check_with_oracle(brokers)


async def test_a_plain_broker_of_our_own_is_a_cloud_too() -> None:
    async with federation(local_configs(SITES, "broadcast_groups", TWO_GROUPS)) as brokers:
        await check_with_oracle({name: broker for name, broker in brokers.items() if name != CLOUD})


async def test_clients_of_the_cloud_take_part_both_ways(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        vanilla = await join(stack, cloud.port, "vanilla")
        await vanilla.client.subscribe("from-edge/#", qos=1)
        near = await join(stack, brokers["paris"].port, "near")
        await near.client.subscribe("from-cloud/#", qos=1)
        await near.client.subscribe("from-cloud/+", qos=1)
        fenced = await join(stack, brokers["paris"].port, "fenced")
        await fenced.client.subscribe("from-cloud/#", within=Circle(SPOTS[0], 1e6), qos=1)
        await quiet(*brokers.values())
        await near.client.publish("from-edge/1", b"hello", at=(48.9, 2.4), qos=1, user=(("mine", "1"),))
        for payload in (b"same", b"same", b"other", b"same"):
            await vanilla.client.publish("from-cloud/1", payload, qos=1)
        await until(lambda: len(vanilla.messages) == 1 and len(near.messages) == 4)
        await asyncio.sleep(0.2)
        assert near.got == [b"same", b"same", b"other", b"same"]
        assert fenced.got == []
        assert [message.topic for message in vanilla.messages] == ["from-edge/1"]
        assert vanilla.messages[0].qos == 1
        assert vanilla.messages[0].user_property("geo-event-location") == "48.9,2.4"
        assert ("mine", "1") in vanilla.messages[0].user
        await vanilla.client.publish("from-cloud/1", b"placed", at=(48.9, 2.4), qos=1)
        await until(lambda: fenced.got == [b"placed"])


async def test_properties_arrive_in_another_group_as_they_were(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        far = await join(stack, brokers["paris"].port, "far")
        await far.client.subscribe("t", qos=2)
        here = await join(stack, brokers["columbus"].port, "here")
        await here.client.subscribe("t", qos=2)
        await quiet(*brokers.values())
        user = (("geo-event", "forged:1:1"), ("k", "v"))
        await here.client.publish("t", b"x", qos=2, user=user, content_type="text/plain", at=(1.0, 2.0))
        await until(lambda: bool(far.messages and here.messages))
        assert far.messages == here.messages


async def test_equal_payloads_are_different_events(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        far = await join(stack, brokers["paris"].port, "far")
        await far.client.subscribe("t/#", qos=1)
        await far.client.subscribe("#", qos=1)
        both = await join(stack, brokers["columbus"].port, "both")
        await both.client.subscribe("t/1", qos=1)
        await quiet(*brokers.values())
        for qos in (0, 1, 2, 0, 1, 2):
            await both.client.publish("t/1", b"same", qos=qos)
        await until(lambda: len(far.messages) == 6 and len(both.messages) == 6)
        await asyncio.sleep(0.2)
        assert len(far.messages) == len(both.messages) == 6


async def test_qos_and_retain_survive_the_cloud(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        live = await join(stack, brokers["paris"].port, "live")
        await live.client.subscribe("state/+", qos=2, retain_as_published=True)
        await quiet(*brokers.values())
        publisher = await join(stack, brokers["columbus"].port, "publisher")
        for qos in (0, 1, 2):
            await publisher.client.publish(f"state/{qos}", b"kept", qos=qos, retain=True)
        await publisher.client.publish("other/1", b"kept too", qos=1, retain=True)
        await until(lambda: len(live.messages) == 3)
        assert sorted((m.topic, m.qos, m.retain) for m in live.messages) == [(f"state/{q}", q, True) for q in range(3)]
        late = await join(stack, cloud.port, "late-vanilla")
        await late.client.subscribe("state/#", qos=2)
        await until(lambda: len(late.messages) == 3)
        assert sorted((m.qos, m.retain) for m in late.messages) == [(0, True), (1, True), (2, True)]
        late_edge = await join(stack, brokers["paris"].port, "late-edge")
        await late_edge.client.subscribe("other/1", qos=1)
        await until(lambda: late_edge.got == [b"kept too"])


async def test_what_a_client_of_the_cloud_retained_comes_once(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        vanilla = await join(stack, cloud.port, "vanilla")
        await vanilla.client.publish("state/1", b"on", qos=1, retain=True)
        edge = await join(stack, brokers["paris"].port, "edge")
        await edge.client.subscribe("state/1", qos=1, retain_as_published=True)
        await until(lambda: edge.got == [b"on"])
        await edge.client.subscribe("state/+", qos=1, retain_as_published=True)
        await edge.client.subscribe("#", qos=1, retain_as_published=True)
        await quiet(*brokers.values())
        assert edge.got == [b"on"]
        for payload in (b"off", b"on", b"on"):
            await vanilla.client.publish("state/1", payload, qos=1, retain=True)
        await until(lambda: len(edge.got) >= 4)
        await asyncio.sleep(0.2)
        assert edge.got == [b"on", b"off", b"on", b"on"]
        assert all(message.retain for message in edge.messages[1:])


async def test_unsubscribes_reach_the_cloud(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        publisher = await join(stack, brokers["columbus"].port, "publisher")
        one, two = [await join(stack, brokers[name].port, name) for name in ("frankfurt", "paris")]
        for listening in (one, two):
            await listening.client.subscribe("t", qos=1)
        await quiet(*brokers.values())
        await one.client.unsubscribe("t")
        await quiet(*brokers.values())
        await publisher.client.publish("t", b"1", qos=1)
        await until(lambda: two.got == [b"1"])
        await two.client.unsubscribe("t")
        await quiet(*brokers.values())
        await publisher.client.publish("t", b"2", qos=1)
        await asyncio.sleep(0.3)
        sent = [line for line in cloud.log if "Sending PUBLISH to geomq-frankfurt" in line and "'t'" in line]
        assert len(sent) == 1


async def test_groups_live_on_while_the_cloud_is_away(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **TWO_GROUPS) as brokers, AsyncExitStack() as stack:
        here, member, far = [await join(stack, brokers[name].port, name) for name in ("frankfurt", "paris", "columbus")]
        for listening in (member, far):
            await listening.client.subscribe("t", qos=1)
        await quiet(*brokers.values())
        await here.client.publish("t", b"before", qos=1)
        await until(lambda: member.got == far.got == [b"before"])
        await cloud.kill()
        await until(lambda: not any(linked(broker) for broker in brokers.values()))
        await here.client.publish("t", b"meanwhile", qos=1)
        await until(lambda: member.got == [b"before", b"meanwhile"])
        await far.client.subscribe("new", qos=1)
        await cloud.start()
        await quiet(*brokers.values())
        await here.client.publish("new", b"after", qos=1)
        await until(lambda: far.got == [b"before", b"meanwhile", b"after"])
        assert member.got == [b"before", b"meanwhile"]


def durable(configured: dict[str, Config], folder: Path) -> dict[str, Config]:
    """The same brokers with their data on disk."""
    return {
        name: msgspec.structs.replace(
            config,
            broker=msgspec.structs.replace(config.broker, data_dir=str(folder / name)),
            persistence=settings.Persistence(sync=False),
        )
        for name, config in configured.items()
    }


async def test_a_leader_that_restarts_finds_at_the_cloud_what_it_missed(cloud: MosquittoCloud, tmp_path: Path) -> None:
    configured = durable(cloud_configs(settings.Cloud(address=cloud.address), TWO_GROUPS, brokers=2), tmp_path)
    lasting: dict[str, Any] = {"clean_start": False, "session_expiry_s": 600}
    async with Broker(configured["columbus"]) as columbus, AsyncExitStack() as stack:
        async with Broker(configured["frankfurt"]) as frankfurt:
            async with Client("127.0.0.1", frankfurt.port, client_id="s", **lasting) as subscriber:
                await subscriber.subscribe("t", qos=1)
                await quiet(columbus, frankfurt)
            async with Client("127.0.0.1", frankfurt.port, client_id="short") as short:
                await short.subscribe("gone", qos=1)
                await quiet(columbus, frankfurt)
                frankfurt.core.node.strategy.gone = lambda *_, **__: None  # type: ignore[method-assign]
        publisher = await join(stack, columbus.port, "publisher")
        await publisher.client.publish("t", b"meanwhile", qos=1)
        async with Broker(configured["frankfurt"]) as again:
            listening = await join(stack, again.port, "s", **lasting)
            await until(lambda: listening.got == [b"meanwhile"])
            await quiet(again)
            await publisher.client.publish("gone", b"for nobody", qos=1)
            await publisher.client.publish("t", b"after", qos=1)
            await until(lambda: listening.got == [b"meanwhile", b"after"])
    assert not any("Sending PUBLISH to geomq-frankfurt" in line and "'gone'" in line for line in cloud.log)


async def test_events_that_wait_for_the_cloud_outlive_a_restart(cloud: MosquittoCloud, tmp_path: Path) -> None:
    configured = durable(cloud_configs(settings.Cloud(address=cloud.address), TWO_GROUPS, brokers=2), tmp_path)
    async with Broker(configured["frankfurt"]) as frankfurt, AsyncExitStack() as stack:
        async with Broker(configured["columbus"]) as columbus:
            subscriber = await join(stack, frankfurt.port, "s")
            await subscriber.client.subscribe("t", qos=1)
            await quiet(columbus, frankfurt)
            await cloud.kill()
            await until(lambda: not (linked(columbus) or linked(frankfurt)))
            async with Client("127.0.0.1", columbus.port) as publisher:
                await publisher.publish("t", b"kept", qos=1)
        await cloud.start()
        async with Broker(configured["columbus"]) as again:
            await until(lambda: subscriber.got == [b"kept"])
            assert linked(again)


async def test_killed_processes_lose_nothing_acknowledged_and_double_nothing(
    cloud: MosquittoCloud, tmp_path: Path
) -> None:
    configured = cloud_configs(settings.Cloud(address=cloud.address), TWO_GROUPS, brokers=2)
    brokers = {}
    for (name, config), port in zip(durable(configured, tmp_path).items(), free_ports(2), strict=True):
        listeners = (settings.Listener(host="127.0.0.1", port=port),)
        (tmp_path / f"{name}.toml").write_text(config_text(msgspec.structs.replace(config, listeners=listeners)))
        brokers[name] = Process(name, port, tmp_path / f"{name}.toml")
    acknowledged: set[bytes] = set()
    receiver = Receiver(brokers["frankfurt"].port, 2)
    tasks = [asyncio.create_task(receiver.run())]
    try:
        for broker in brokers.values():
            await broker.start()
        await asyncio.wait_for(receiver.ready.wait(), 30)
        await until_heard(brokers["columbus"].port, receiver)
        tasks.append(asyncio.create_task(publish(brokers["columbus"].port, 2, acknowledged)))
        for broker in brokers.values():
            await until_more(acknowledged)
            broker.stop()
            await broker.start()
        await until_more(acknowledged)
        tasks.pop().cancel()
        await until(lambda: acknowledged <= set(receiver.got), seconds=60)
        assert max(receiver.got.values()) == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for broker in brokers.values():
            broker.stop()


async def test_a_dead_leader_is_noticed(cloud: MosquittoCloud) -> None:
    async with groups(cloud, brokers=4, **QUICK) as brokers, AsyncExitStack() as stack:
        set_apart(brokers, "columbus")
        rest = [brokers["paris"], brokers["sydney"]]
        await until(lambda: all(leader(broker) == "frankfurt" for broker in rest))
        member = await join(stack, brokers["sydney"].port, "member")
        await member.client.subscribe("t", qos=1)
        publisher = await join(stack, brokers["columbus"].port, "publisher")
        await brokers["frankfurt"].stop()
        await until(lambda: all(leader(broker) == "paris" for broker in rest))
        await quiet(*rest)
        await publisher.client.publish("t", b"new leader", qos=1)
        await until(lambda: member.got == [b"new leader"])
        assert strategy(brokers["paris"]).members.keys() == {"sydney"}


async def test_a_member_leaves_a_leader_that_is_far_away_now(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **QUICK, probes=2) as brokers, AsyncExitStack() as stack:
        await until(lambda: leader(brokers["paris"]) == "frankfurt")
        set_apart(brokers, "paris")
        await until(lambda: leader(brokers["paris"]) == "paris")
        member = await join(stack, brokers["paris"].port, "member")
        await member.client.subscribe("t", qos=1)
        await quiet(*brokers.values())
        publisher = await join(stack, brokers["frankfurt"].port, "publisher")
        await publisher.client.publish("t", b"by the cloud", qos=1)
        await until(lambda: member.got == [b"by the cloud"])
        assert any("Sending PUBLISH to geomq-paris" in line and "'t'" in line for line in cloud.log)


async def test_nonsense_on_the_leaders_topic_changes_nothing(cloud: MosquittoCloud) -> None:
    async with groups(cloud, **QUICK) as brokers, AsyncExitStack() as stack:
        vanilla = await join(stack, cloud.port, "vanilla")
        edge = await join(stack, brokers["columbus"].port, "edge")
        await edge.client.subscribe("#", qos=1)
        await until(lambda: len({leader(broker) for broker in brokers.values()}) == 1)
        nonsense = [
            b"",
            b"\xff",
            b"[" * 1000,
            b"{}",
            b'{"leader": 1, "lcm": 1}',
            b'{"leader": "nobody", "lcm": 1e999}',
            b'{"leader": "nobody", "lcm": 1e9}',
            b"x" * 100_000,
        ]
        for payload in nonsense:
            await vanilla.client.publish("DG/leaders", payload, qos=1)
        await asyncio.sleep(0.3)
        assert linked(*brokers.values())
        assert len({leader(broker) for broker in brokers.values()}) == 1
        assert edge.got == []


async def test_a_cloud_of_mqtt_3_is_refused_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x01")
        writer.close()

    old = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{old.sockets[0].getsockname()[1]}"
    caplog.set_level(logging.WARNING, "geomq.cloud")
    configured = cloud_configs(settings.Cloud(address=address), {}, brokers=1)
    async with federation(configured):
        await asyncio.sleep(0.8)
    old.close()
    (record,) = caplog.records
    assert "3.1.1" in record.__dict__["reason"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and a certificate for 127.0.0.1, readable for the user Mosquitto runs as."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test CA")
    openssl("req", *key, "-keyout", "cloud.key", "-out", "cloud.csr", "-subj", "/CN=cloud")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions")
    openssl("x509", "-req", "-in", "cloud.csr", "-out", "cloud.pem", *signing)
    return folder


def texts_of(folder: Path, names: tuple[str, ...]) -> Path:
    """Copies that everybody may read: Mosquitto gives up root before it opens them."""
    readable = Path(tempfile.mkdtemp(prefix="geomq-cloud-"))
    readable.chmod(0o755)
    for name in names:
        (readable / name).write_bytes((folder / name).read_bytes())
        (readable / name).chmod(0o644)
    return readable


async def test_the_cloud_may_want_tls_and_a_password_and_events_may_be_signed(
    tmp_path: Path, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "users").write_text("edge:secret\n")
    subprocess.run(["mosquitto_passwd", "-U", str(tmp_path / "users")], check=True)
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "key").write_text("a key that all brokers share\n")
    open_files = texts_of(certificates, ("cloud.pem", "cloud.key"))
    (open_files / "users").write_bytes((tmp_path / "users").read_bytes())
    (open_files / "users").chmod(0o644)
    extra = (
        f"allow_anonymous false\npassword_file {open_files}/users\n"
        f"certfile {open_files}/cloud.pem\nkeyfile {open_files}/cloud.key"
    )
    section = settings.Cloud(
        tls=True,
        cafile=str(certificates / "ca.pem"),
        username="edge",
        password_file=str(tmp_path / "password"),
        key_file=str(tmp_path / "key"),
    )
    try:
        async with mosquitto(tmp_path, extra) as secured, AsyncExitStack() as stack:
            section = msgspec.structs.replace(section, address=secured.address)
            async with federation(cloud_configs(section, TWO_GROUPS, brokers=2)) as brokers:
                far = await join(stack, brokers["frankfurt"].port, "far")
                await far.client.subscribe("t", qos=1)
                await quiet(*brokers.values())
                here = await join(stack, brokers["columbus"].port, "here")
                await here.client.publish("t", b"signed", qos=1)
                await until(lambda: far.got == [b"signed"])
                assert far.messages[0].user == ()
            wrong = msgspec.structs.replace(section, password_file=str(tmp_path / "key"))
            async with federation(cloud_configs(wrong, {}, brokers=1)):
                await until(lambda: any("not authorized" in str(vars(record)).lower() for record in caplog.records))
    finally:
        shutil.rmtree(open_files)
