"""Listeners with rules of their own: who comes in, what they may do there, and what they are offered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.probes import Probe, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Auth, BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.local_federation import free_ports
from geomq.broker.security.passwords import hash_password
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311

pytestmark = pytest.mark.anyio

LASTING = Properties(session_expiry_interval=600)


@asynccontextmanager
async def running(*listeners: dict[str, Any], **sections: Any) -> AsyncIterator[Broker]:
    """A broker with listeners on loopback; by default nothing is kept on disk."""
    sections.setdefault("persistence", Persistence(enabled=False))
    made = tuple(Listener(**{"host": "127.0.0.1", "port": 0, **each}) for each in listeners)
    async with Broker(Config(listeners=made, metrics=Metrics(sys_interval_s=0), **sections)) as broker:
        try:
            yield broker
        finally:
            await drop_all()


async def come(broker: Broker, number: int, connect: Connect) -> tuple[Probe, Connack]:
    """Connect to the broker's listener of this number."""
    return await Probe.connect(broker.addresses[number][2], connect)


async def client(broker: Broker, number: int, name: str, **more: Any) -> Probe:
    probe, connack = await come(broker, number, Connect(name, **more))
    assert connack.reason == ReasonCode.SUCCESS
    return probe


async def answer(probe: Probe, topic: str, payload: bytes = b"x", qos: int = 1, **more: Any) -> ReasonCode:
    probe.publish(topic, payload, qos, **more)
    return (await probe.expect(Puback)).reason


async def dismissal(probe: Probe) -> ReasonCode:
    return (await probe.expect(Disconnect)).reason


@pytest.fixture
def users(tmp_path: Path) -> str:
    (tmp_path / "users").write_text(f"anna:{hash_password(b'secret', iterations=10)}\n")
    return str(tmp_path / "users")


def acl(tmp_path: Path, name: str, text: str) -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


async def test_an_open_listener_does_not_open_another(users: str) -> None:
    public, local = {"anonymous": "never", "password_file": users}, {"anonymous": "always"}
    async with running(public, local) as broker:
        anonymous, anna = Connect("a"), Connect("b", username="anna", password=b"secret")
        assert (await come(broker, 0, anonymous))[1].reason == ReasonCode.NOT_AUTHORIZED
        assert (await come(broker, 1, anonymous))[1].reason == ReasonCode.SUCCESS
        assert (await come(broker, 0, anna))[1].reason == ReasonCode.SUCCESS
        wrong = msgspec.structs.replace(anna, password=b"x")
        assert (await come(broker, 0, wrong))[1].reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_a_listener_that_says_nothing_has_what_goes_for_all(users: str) -> None:
    async with running({}, {"anonymous": "always"}, auth=Auth(anonymous="never", password_file=users)) as broker:
        assert (await come(broker, 0, Connect("a")))[1].reason == ReasonCode.NOT_AUTHORIZED
        assert (await come(broker, 1, Connect("a")))[1].reason == ReasonCode.SUCCESS


async def test_rights_are_those_of_the_listener_that_a_client_came_by_last(tmp_path: Path) -> None:
    narrow = acl(tmp_path, "narrow", "topic readwrite open/#\n")
    async with running({"acl_file": narrow}, {}) as broker:
        here = await client(broker, 0, "here", properties=LASTING)
        there = await client(broker, 1, "there")
        await here.subscribe("#")
        assert await answer(here, "closed/x") == ReasonCode.NOT_AUTHORIZED
        assert await answer(there, "closed/x") == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert await answer(there, "open/x") == ReasonCode.SUCCESS
        assert (await here.expect(Publish)).topic == "open/x"
        await here.drop()
        again = await client(broker, 1, "here", clean_start=False, properties=LASTING)
        assert await answer(there, "closed/x") == ReasonCode.SUCCESS
        assert (await again.expect(Publish)).topic == "closed/x"


async def test_rules_of_a_listener_hold_for_clients_that_are_away_and_after_a_restart(tmp_path: Path) -> None:
    narrow = acl(tmp_path, "narrow", "topic readwrite open/#\n")
    ports = free_ports(2)
    listeners: list[dict[str, Any]] = [{"port": ports[0], "acl_file": narrow}, {"port": ports[1]}]
    kept = {"persistence": Persistence(sync=False), "broker": BrokerSettings(data_dir=str(tmp_path / "data"))}
    async with running(*listeners, **kept) as broker:
        here = await client(broker, 0, "here", properties=LASTING)
        assert (await here.subscribe("#")).reasons == (ReasonCode.SUCCESS,)
        await here.drop()
    async with running(*listeners, **kept) as broker:
        rights = broker.core.clients["here"].rights
        assert (rights.may_read("open/x"), rights.may_read("closed/x")) == (True, False)
    async with running({**listeners[0], "port": free_ports(1)[0]}, **kept) as broker:
        rights = broker.core.clients["here"].rights
        assert (rights.may_read("closed/x"), rights.may_write("open/x")) == (True, False)


async def test_who_only_claims_a_name_does_not_get_the_session_of_who_proved_it(users: str) -> None:
    public, local = {"anonymous": "never", "password_file": users}, {"anonymous": "always"}
    async with running(public, local) as broker:
        anna = Connect("a", username="anna", password=b"secret", clean_start=False, properties=LASTING)
        first, _ = await come(broker, 0, anna)
        for _ in range(2):  # while anna is there, and while she is away
            assert (await come(broker, 1, anna))[1].reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            await first.drop()
        again, connack = await come(broker, 0, anna)
        assert connack.session_present
        await again.drop()
        other = msgspec.structs.replace(anna, client_id="b")
        assert (await come(broker, 1, other))[1].reason == ReasonCode.SUCCESS
        assert (await come(broker, 0, other))[1].session_present


async def test_only_the_versions_of_the_listener_are_spoken() -> None:
    async with running({"versions": ("5",)}, {"versions": ("3.1.1",)}, {}) as broker:
        old, new = Connect("a", V311), Connect("b", V5)
        refused = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        assert (await come(broker, 0, old))[1].reason == refused
        assert (await come(broker, 1, new))[1].reason == refused
        for number, connect in ((0, new), (1, old), (2, old), (2, new)):
            assert (await come(broker, number, connect))[1].reason == ReasonCode.SUCCESS


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_without_an_id_is_refused_where_ids_are_required(version: int) -> None:
    async with running({"empty_client_id": False}, {}, auth=Auth()) as broker:
        refused = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        assert (await come(broker, 0, Connect("", version)))[1].reason == refused
        assert (await come(broker, 1, Connect("", version)))[1].reason == ReasonCode.SUCCESS
    async with running({}, {"empty_client_id": True}, auth=Auth(empty_client_id=False)) as broker:
        assert (await come(broker, 0, Connect("", version)))[1].reason == refused
        assert (await come(broker, 1, Connect("", version)))[1].reason == ReasonCode.SUCCESS


async def test_quality_of_service_is_bounded_by_the_listener() -> None:
    async with running({"qos_max": 0}, {"qos_max": 1}, {}, limits=Limits(qos_max=2)) as broker:
        first, connack = await come(broker, 0, Connect("a"))
        assert connack.properties.maximum_qos == 0
        assert (await first.subscribe("t")).reasons == (ReasonCode.SUCCESS,)
        second = await client(broker, 1, "b")
        for _ in range(3):
            assert await answer(second, "t") == ReasonCode.SUCCESS
            assert (await first.expect(Publish)).qos == 0
        for _ in range(2):
            first.publish("t", b"low")
            assert (await first.expect(Publish)).payload == b"low"
        first.publish("t", b"high", 1)
        assert await dismissal(first) == ReasonCode.QOS_NOT_SUPPORTED
        second.publish("t", b"higher", 2)
        assert await dismissal(second) == ReasonCode.QOS_NOT_SUPPORTED
        third = await client(broker, 2, "c")
        assert (await come(broker, 0, Connect("d", will=Will("w", qos=1))))[1].reason == ReasonCode.QOS_NOT_SUPPORTED
        assert (await third.subscribe("t")).reasons == (ReasonCode.SUCCESS,)


async def test_events_are_retained_only_where_the_listener_allows_it() -> None:
    async with running({"retain": False}, {}) as broker:
        first, connack = await come(broker, 0, Connect("a"))
        assert connack.properties.retain_available == 0
        first.publish("t", b"x", 0, retain=True)
        assert await dismissal(first) == ReasonCode.RETAIN_NOT_SUPPORTED
        with_will = Connect("b", will=Will("w", retain=True))
        assert (await come(broker, 0, with_will))[1].reason == ReasonCode.RETAIN_NOT_SUPPORTED
        old = await client(broker, 0, "c", version=V311)
        old.publish("t", b"x", 0, retain=True)
        with pytest.raises(Closed):
            await old.receive()
        second = await client(broker, 1, "d")
        assert await answer(second, "t", retain=True) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert list(broker.parts.retention.topics()) == ["t"]


async def test_packets_keep_alive_and_aliases_are_bounded_by_the_listener() -> None:
    small = {"packet_bytes_max": 30, "keep_alive_max_s": 20, "topic_alias_maximum": 3}
    async with running(small, {}, limits=Limits(topic_alias_maximum=7)) as broker:
        probe, connack = await come(broker, 0, Connect("a", keep_alive=600))
        told = connack.properties
        assert (told.maximum_packet_size, told.server_keep_alive, told.topic_alias_maximum) == (30, 20, 3)
        assert await answer(probe, "t", b"x" * 10) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        probe.publish("t", b"x" * 40, 1)
        assert await dismissal(probe) == ReasonCode.PACKET_TOO_LARGE
        probe, connack = await come(broker, 1, Connect("a", keep_alive=600))
        told = connack.properties
        assert (told.server_keep_alive, told.topic_alias_maximum) == (None, 7)
        assert await answer(probe, "t", b"x" * 40) == ReasonCode.NO_MATCHING_SUBSCRIBERS


async def test_payloads_above_the_limit_are_refused_also_when_others_went_the_short_way() -> None:
    async with running({}, limits=Limits(payload_bytes_max=100)) as broker:
        reader, writer = await client(broker, 0, "r"), await client(broker, 0, "w")
        await reader.subscribe("t")
        for payload in (b"a", b"b", b"c" * 100):
            assert await answer(writer, "t", payload) == ReasonCode.SUCCESS
            writer.publish("t", payload)
            assert [(await reader.expect(Publish)).payload for _ in range(2)] == [payload] * 2
        assert await answer(writer, "t", b"d" * 101) == ReasonCode.QUOTA_EXCEEDED
        writer.publish("t", b"d" * 101)
        assert await answer(writer, "t", b"last") == ReasonCode.SUCCESS
        assert (await reader.expect(Publish)).payload == b"last"


class TestMountPoints:
    """Clients of a listener with a mount point live in a part of the topics and do not know it."""

    async def test_they_hear_each_other_and_nothing_from_outside(self) -> None:
        async with running({"mount_point": "site/"}, {}) as broker:
            inside, other, outside = [
                await client(broker, number, name) for number, name in ((0, "a"), (0, "b"), (1, "c"))
            ]
            await inside.subscribe("#")
            await outside.subscribe("#")
            for _ in range(3):
                for qos in (0, 1):
                    other.publish("door/open", b"x", qos)
                    if qos:
                        assert (await other.expect(Puback)).reason == ReasonCode.SUCCESS
                    assert (await inside.expect(Publish)).topic == "door/open"
                    assert (await outside.expect(Publish)).topic == "site/door/open"
            assert await answer(other, "$SYS/x") == ReasonCode.SUCCESS
            assert (await outside.expect(Publish)).topic == "site/$SYS/x"
            assert (await inside.expect(Publish)).topic == "$SYS/x"
            for qos in (0, 1):
                for _ in range(2):
                    outside.publish("door/open", b"elsewhere", qos)
                outside.publish("site/door/open", b"here", qos)
                assert (await inside.expect(Publish)).payload == b"here"

    async def test_retained_events_wills_shares_and_aliases_stay_inside(self) -> None:
        async with running({"mount_point": "site/"}, {}) as broker:
            going = await client(broker, 0, "going", will=Will("gone", b"w", retain=True))
            outside = await client(broker, 1, "outside")
            await outside.subscribe("site/#")
            going.send(Publish("t", b"1", properties=Properties(topic_alias=1)))
            going.send(Publish("", b"2", properties=Properties(topic_alias=1)))
            assert [(await outside.expect(Publish)).topic for _ in range(2)] == ["site/t"] * 2
            await going.drop()
            assert (await outside.expect(Publish)).topic == "site/gone"
            reader = await client(broker, 0, "reader", properties=Properties(topic_alias_maximum=5))
            await reader.subscribe("$share/g/t", "gone")
            assert (await reader.expect(Publish)).topic == "gone"
            for _ in range(2):
                outside.publish("site/t", b"x")
                assert [(await reader.expect(Publish)).payload] == [b"x"]
                await outside.expect(Publish)
            reader.send(Unsubscribe(7, ("$share/g/t", "gone", "never")))
            reasons = (await reader.expect(Unsuback)).reasons
            assert reasons == (ReasonCode.SUCCESS, ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED)

    async def test_rights_are_written_with_the_mount_point(self, tmp_path: Path) -> None:
        rules = acl(tmp_path, "acl", "topic readwrite site/open/#\ntopic readwrite open/#\n")
        async with running({"mount_point": "site/"}, {"mount_point": "other/"}, auth=Auth(acl_file=rules)) as broker:
            mine, other = await client(broker, 0, "a"), await client(broker, 1, "b")
            assert await answer(mine, "open/x") == ReasonCode.NO_MATCHING_SUBSCRIBERS
            assert await answer(other, "open/x") == ReasonCode.NOT_AUTHORIZED

    async def test_a_session_stays_at_its_mount_point(self, tmp_path: Path) -> None:
        ports = free_ports(2)
        listeners: list[dict[str, Any]] = [{"port": ports[0], "mount_point": "site/"}, {"port": ports[1]}]
        kept = {"persistence": Persistence(sync=False), "broker": BrokerSettings(data_dir=str(tmp_path / "data"))}
        async with running(*listeners, **kept) as broker:
            inside = await client(broker, 0, "a", properties=LASTING)
            await inside.subscribe(SubscribeRequest("#", 1))
            await inside.drop()
            assert await answer(await client(broker, 1, "b"), "site/t", qos=1) == ReasonCode.SUCCESS
        async with running(*listeners, **kept) as broker:
            again, connack = await come(broker, 0, Connect("a", clean_start=False, properties=LASTING))
            assert connack.session_present
            assert (await again.expect(Publish)).topic == "t"
            await again.drop()
            _, connack = await come(broker, 1, Connect("a", clean_start=False, properties=LASTING))
            assert not connack.session_present


async def test_a_retained_event_is_given_only_while_its_publisher_might_still_publish_it(tmp_path: Path) -> None:
    rules = acl(tmp_path, "acl", "topic read #\nuser anna\ntopic write a/#\n")
    sections = {"auth": Auth(acl_file=rules, anonymous="always")}
    async with running({}, **sections) as broker:
        anna = await client(broker, 0, "a", username="anna")
        assert await answer(anna, "a/x", retain=True) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        await (await client(broker, 0, "first")).subscribe("a/#")
        assert (await client_gets(broker, "a/#", "before")) == ["a/x"]
        Path(rules).write_text("topic read #\n")
        broker.reload(broker.core.config)
        assert (await client_gets(broker, "a/#", "after")) == []
        off = msgspec.structs.replace(
            broker.core.config, auth=msgspec.structs.replace(sections["auth"], check_retain_source=False)
        )
        broker.reload(off)
        assert (await client_gets(broker, "a/#", "unchecked")) == ["a/x"]


async def client_gets(broker: Broker, topic_filter: str, name: str) -> list[str]:
    """The topics of the retained events that a new client is given."""
    probe = await client(broker, 0, name)
    await probe.subscribe(topic_filter)
    probe.send_bytes(b"\xc0\x00")
    topics = []
    while isinstance(packet := await probe.receive(), Publish):
        topics.append(packet.topic)
    return topics
