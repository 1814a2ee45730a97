"""Who may come in, what they may do, and how much: through a whole broker."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import until
from tests.broker.gated_threads import GatedThreads
from tests.broker.probes import OPEN, Probe, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Auth as AuthConfig
from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.connections.ports import Exchange
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.security.passwords import hash_password
from geomq.broker.server import Broker
from geomq.broker.storage.outbox import Outbox
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311

pytestmark = pytest.mark.anyio

ACL = """
topic read public/#
user anna
topic readwrite anna/#
topic write only/write
fence from on anna/here geo:52.52,13.405;u=50000
fence into on anna/there geo:52.52,13.405;u=50000
user bob
topic readwrite bob/#
topic read anna/#
pattern readwrite own/%c/#
"""


@asynccontextmanager
async def _running(platform: Platform = SYSTEM, **sections: Any) -> AsyncIterator[Broker]:
    sections.setdefault("listeners", (Listener(host="127.0.0.1", port=0),))
    sections.setdefault("persistence", Persistence(enabled=False))
    config = Config(metrics=Metrics(sys_interval_s=0), **sections)
    async with Broker(config, platform=platform) as broker:
        yield broker
        await drop_all()


@pytest.fixture
def files(tmp_path: Path) -> AuthConfig:
    users = "".join(f"{user}:{hash_password(user.encode() * 2, iterations=10)}\n" for user in ("anna", "bob"))
    (tmp_path / "passwords").write_text(users)
    (tmp_path / "acl").write_text(ACL)
    return AuthConfig(password_file=str(tmp_path / "passwords"), acl_file=str(tmp_path / "acl"))


async def _login(broker: Broker, user: str, client_id: str | None = None, **more: Any) -> tuple[Probe, Connack]:
    connect = Connect(client_id or user, username=user, password=user.encode() * 2, **more)
    return await Probe.connect(broker.port, connect)


async def test_the_right_password_opens_and_a_wrong_one_does_not(files: AuthConfig) -> None:
    async with _running(auth=files) as broker:
        for _ in range(2):
            _, connack = await _login(broker, "anna")
            assert connack.reason == ReasonCode.SUCCESS
        for user, password in (("anna", b"wrong"), ("nobody", b"x")):
            probe, connack = await Probe.connect(broker.port, Connect("c", username=user, password=password))
            assert connack.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD
            with pytest.raises(Closed):
                await probe.receive()


async def test_passwords_of_clients_that_left_are_not_checked(files: AuthConfig) -> None:
    threads = GatedThreads()
    platform = Platform(start_workers=lambda *_: threads, processors=1)
    async with _running(platform, auth=files, limits=Limits(connect_timeout_s=600.0)) as broker:
        for number in range(500):  # all of them are there before the broker looks
            with socket.create_connection(("127.0.0.1", broker.port)) as made:
                made.sendall(encode(Connect(f"c{number}", username="anna", password=b"wrong"), V5))
        login = asyncio.create_task(_login(broker, "bob"))
        async with asyncio.timeout(60):
            while broker.core.counts.connections_opened < 501 or len(broker.parts.handlers.connections) > 1:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while not login.done():
                if threads.given:
                    threads.run_next()
                await asyncio.sleep(0.01)
        assert (await login)[1].reason == ReasonCode.SUCCESS
        assert threads.computed == 2  # one of those that left was under way


async def test_what_a_client_sends_while_its_password_is_checked_waits_and_is_bounded(files: AuthConfig) -> None:
    threads = GatedThreads()
    async with _running(Platform(start_workers=lambda *_: threads, processors=1), auth=files) as broker:
        probe = await Probe.open(broker.port)
        probe.send(Connect("c", username="anna", password=b"annaanna"))
        for number in range(2_000):
            probe.publish("anna/x", b"%0512d" % number)
        probe.publish("anna/x", b"last", 1)
        async with asyncio.timeout(60):
            while not threads.given:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        (connection,) = broker.parts.handlers.connections
        assert len(connection._rest) < 2_000 * 512 // 2
        threads.run_next()
        assert (await probe.expect(Connack)).reason == ReasonCode.SUCCESS
        assert (await probe.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert broker.core.counts.events_received == 2_001


async def test_a_password_that_changes_while_it_is_checked_is_checked_again(files: AuthConfig, tmp_path: Path) -> None:
    threads = GatedThreads()
    async with _running(Platform(start_workers=lambda *_: threads, processors=1), auth=files) as broker:
        probe = await Probe.open(broker.port)
        probe.send(Connect("c", username="anna", password=b"annaanna"))
        async with asyncio.timeout(60):
            while not threads.given:
                await asyncio.sleep(0.01)
        (tmp_path / "passwords").write_text(f"anna:{hash_password(b'other', iterations=10)}\n")
        broker.reload(broker.core.config)
        async with asyncio.timeout(60):
            while threads.computed < 2:
                if threads.given:
                    threads.run_next()
                await asyncio.sleep(0.01)
        assert (await probe.expect(Connack)).reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_a_user_that_goes_while_its_client_waits_for_the_disk_does_not_come_in(
    files: AuthConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry_interval=100)}
    on_disk: dict[str, Any] = {
        "broker": BrokerSettings(data_dir=str(tmp_path / "data")),
        "persistence": Persistence(free_bytes_min=0),
    }
    async with _running(auth=files, **on_disk) as broker:
        anna, _ = await _login(broker, "anna", **kept)
        await anna.drop()
        await until(lambda: broker.core.clients["anna"].connection is None)
        waiting: list[Callable[[], None]] = []
        monkeypatch.setattr(Outbox, "when_safe", lambda _, then: waiting.append(then))
        login = asyncio.create_task(_login(broker, "anna", **kept))
        await until(lambda: bool(waiting))
        (tmp_path / "passwords").write_text("")
        broker.reload(broker.core.config)
        waiting[0]()
        assert (await login)[1].reason == ReasonCode.NOT_AUTHORIZED
        assert broker.core.clients["anna"].connection is None


async def test_anonymous_clients_come_in_only_where_allowed() -> None:
    for anonymous, good in (("loopback", True), ("always", True), ("never", False)):
        auth = AuthConfig(anonymous=anonymous)  # type: ignore[arg-type]
        async with _running(auth=auth) as broker:
            _, connack = await Probe.connect(broker.port, Connect("c", V311))
            assert connack.reason == (ReasonCode.SUCCESS if good else ReasonCode.NOT_AUTHORIZED)


async def test_rights_hold_for_publishing_reading_retained_and_wills(files: AuthConfig) -> None:
    async with _running(auth=files) as broker:
        anna, _ = await _login(broker, "anna")
        bob, _ = await _login(broker, "bob")
        await bob.subscribe(SubscribeRequest("#", 1))
        for topic, reason in (
            ("anna/x", ReasonCode.SUCCESS),
            ("only/write", ReasonCode.NO_MATCHING_SUBSCRIBERS),
            ("bob/x", ReasonCode.NOT_AUTHORIZED),
            ("public/x", ReasonCode.NOT_AUTHORIZED),
            ("own/anna/1", ReasonCode.NO_MATCHING_SUBSCRIBERS),
            ("own/bob/1", ReasonCode.NOT_AUTHORIZED),
            ("$SYS/x", ReasonCode.NOT_AUTHORIZED),
        ):
            anna.publish(topic, b"x", 1, retain=topic == "only/write")
            assert (await anna.expect(Puback)).reason == reason, topic
        assert (await bob.expect(Publish)).topic == "anna/x"
        await bob.subscribe("only/#")
        assert await bob.silent()
        dying, _ = await _login(broker, "anna", "dying", will=Will("bob/will", b"x"))
        await dying.drop()
        assert await bob.silent()
        assert broker.core.counts.deliveries_denied


async def test_what_the_broker_says_cannot_be_forged_through_a_fence() -> None:
    async with _running() as broker:
        probe, _ = await Probe.connect(broker.port, Connect("c"))
        probe.publish("$geo/fence/f", b"geo:52.5,13.4;u=9", 1)
        assert (await probe.expect(Puback)).reason == ReasonCode.SUCCESS
        probe.publish("$geo/to/f/$SYS/broker/version", b"mine", 1, retain=True)
        assert (await probe.expect(Puback)).reason == ReasonCode.NOT_AUTHORIZED


async def test_who_may_not_read_takes_nothing_from_a_group_whose_members_are_away(files: AuthConfig) -> None:
    keeps: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry_interval=60)}
    async with _running(auth=files) as broker:
        worker, _ = await _login(broker, "bob", **keeps)
        await worker.subscribe(SubscribeRequest("$share/g/anna/#", 1))
        await worker.drop()
        thief, _ = await Probe.connect(broker.port, Connect("thief"))
        await thief.subscribe(SubscribeRequest("$share/g/anna/#", 1))
        anna, _ = await _login(broker, "anna")
        anna.publish("anna/job", b"x", 1)
        assert (await anna.expect(Puback)).reason == ReasonCode.SUCCESS
        worker, _ = await _login(broker, "bob", **keeps)
        assert (await worker.expect(Publish)).topic == "anna/job"
        assert await thief.silent()


async def test_areas_bound_where_a_client_may_publish(files: AuthConfig) -> None:
    async with _running(auth=files) as broker:
        anna, _ = await _login(broker, "anna")
        inside = Properties(user_properties=(("geo-fence", "geo:52.52,13.405;u=1000"),))
        outside = Properties(user_properties=(("geo-fence", "geo:48.8,2.3;u=1000"),))
        denied, lonely = ReasonCode.NOT_AUTHORIZED, ReasonCode.NO_MATCHING_SUBSCRIBERS
        for place, here in ((b"", denied), (b"48.8,2.3", denied), (b"52.5,13.4", lonely)):
            anna.publish("$geo/location", place, 1)
            await anna.expect(Puback)
            anna.publish("anna/here", b"", 1)
            assert (await anna.expect(Puback)).reason == here
        for properties, reason in ((Properties(), denied), (outside, denied), (inside, lonely)):
            anna.publish("anna/there", b"", 1, properties=properties)
            assert (await anna.expect(Puback)).reason == reason
        anna.publish("$geo/fence/f", b"geo:48.8,2.3;u=1000", 1)
        await anna.expect(Puback)
        for topic in ("$geo/to/f/anna/there", "$geo/to/f/bob/x"):
            anna.publish(topic, b"", 1)
            assert (await anna.expect(Puback)).reason == denied


async def test_a_session_belongs_to_the_user_who_opened_it(files: AuthConfig) -> None:
    async with _running(auth=files) as broker:
        await _login(broker, "anna", "shared")
        _, connack = await _login(broker, "bob", "shared")
        assert connack.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


async def test_changed_files_count_after_a_reload(files: AuthConfig, tmp_path: Path) -> None:
    async with _running(auth=files) as broker:
        anna, _ = await _login(broker, "anna")
        (tmp_path / "acl").write_text("user anna\ntopic write bob/#\n")
        broker.reload(broker.core.config)
        anna.publish("bob/x", b"", 1)
        assert (await anna.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS
        broker.reload(msgspec.structs.replace(broker.core.config, limits=Limits(receive_maximum=3)))
        _, connack = await _login(broker, "bob")
        assert connack.properties.receive_maximum == 3


@pytest.mark.parametrize(
    ("users", "gone"),
    [
        ({"anna": b"annaanna", "bob": b"bobbob"}, "both"),  # hashed anew
        ({"bob": None}, "anna"),
        ({"anna": b"another", "bob": None}, "anna"),
        ({"anna": None, "bob": None}, "nobody"),
    ],
)
async def test_a_reload_ends_connections_of_users_that_are_gone_or_have_another_password(
    users: dict[str, bytes | None], gone: str, files: AuthConfig, tmp_path: Path
) -> None:
    async with _running(auth=files) as broker:
        before = dict(line.split(":", 1) for line in (tmp_path / "passwords").read_text().splitlines())
        anna, _ = await _login(broker, "anna")
        again, _ = await _login(broker, "anna", "again")  # by the remembered password
        bob, _ = await _login(broker, "bob")
        secrets = {
            user: before[user] if password is None else hash_password(password, iterations=10)
            for user, password in users.items()
        }
        (tmp_path / "passwords").write_text("".join(f"{user}:{secret}\n" for user, secret in secrets.items()))
        broker.reload(broker.core.config)
        for user, probe in (("anna", anna), ("anna", again), ("bob", bob)):
            if gone in (user, "both"):
                assert (await probe.expect(Disconnect)).reason == ReasonCode.NOT_AUTHORIZED
                with pytest.raises(Closed):
                    await probe.receive()
            else:
                probe.publish(f"{user}/x", b"", 1)
                assert (await probe.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert broker.core.counts.connections_revoked == {"both": 3, "anna": 2, "nobody": 0}[gone]
        assert len(broker.parts.handlers.connections) == 3 - broker.core.counts.connections_revoked


async def test_a_reload_ends_connections_that_have_no_right_to_connect_any_more(files: AuthConfig) -> None:
    none = AuthConfig()
    async with _running(auth=none) as broker:
        anonymous, _ = await Probe.connect(broker.port, Connect("c"))
        named, _ = await _login(broker, "anna")
        broker.reload(msgspec.structs.replace(broker.core.config, auth=files))
        assert (await named.expect(Disconnect)).reason == ReasonCode.NOT_AUTHORIZED  # a name was enough for it
        assert await anonymous.silent()
        proved, _ = await _login(broker, "bob", "not-the-name-of-bob")
        old, _ = await _login(broker, "bob", "old", version=V311)
        auth = msgspec.structs.replace(files, anonymous="never", client_id="prefix")
        broker.reload(msgspec.structs.replace(broker.core.config, auth=auth))
        assert (await anonymous.expect(Disconnect)).reason == ReasonCode.NOT_AUTHORIZED
        assert (await proved.expect(Disconnect)).reason == ReasonCode.NOT_AUTHORIZED
        with pytest.raises(Closed):
            await old.receive()
        proved, _ = await _login(broker, "bob")
        broker.reload(msgspec.structs.replace(broker.core.config, auth=none))
        assert await proved.silent()
        assert broker.core.counts.connections_revoked == 4


async def test_what_waits_for_a_client_is_kept_from_it_once_it_may_not_read_it(
    files: AuthConfig, tmp_path: Path
) -> None:
    keeps: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry_interval=60)}
    async with _running(auth=files, limits=Limits(inflight_messages_max=1)) as broker:
        s, _ = await _login(broker, "bob", "s", **keeps)
        await s.subscribe(SubscribeRequest("anna/#", 1))
        p, _ = await _login(broker, "anna", "p")
        for topic in ("anna/1", "anna/2", "anna/3"):
            p.publish(topic, b"secret", 1)
            await p.expect(Puback)
        first = await s.expect(Publish)
        (tmp_path / "acl").write_text(ACL.replace("topic read anna/#", "topic read anna/3"))
        broker.reload(broker.core.config)
        s.send(Puback(first.packet_id))
        assert (await s.expect(Publish)).topic == "anna/3"
        await s.drop()
        # What was sent already is not sent again.
        (tmp_path / "acl").write_text(ACL.replace("topic read anna/#", ""))
        broker.reload(broker.core.config)
        s, connack = await _login(broker, "bob", "s", **keeps)
        assert connack.session_present
        assert await s.silent()
        assert broker.core.counts.deliveries_denied == 2


async def test_connections_per_address_are_bounded() -> None:
    async with _running(limits=Limits(connections_per_address_max=2)) as broker:
        for number in range(2):
            await Probe.connect(broker.port, Connect(f"c{number}"))
        with pytest.raises(Closed):
            await Probe.connect(broker.port, Connect("c2"))
        await OPEN.pop(0).drop()
        await asyncio.sleep(0.05)
        await Probe.connect(broker.port, Connect("c3"))


async def test_sessions_are_bounded_also_those_of_clients_that_left() -> None:
    async with _running(limits=Limits(sessions_max=2)) as broker:
        keeps: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry_interval=60)}
        for name in ("a", "b"):
            probe, connack = await Probe.connect(broker.port, Connect(name, **keeps))
            assert connack.reason == ReasonCode.SUCCESS
            await probe.disconnect()
        _, connack = await Probe.connect(broker.port, Connect("c"))
        assert connack.reason == ReasonCode.QUOTA_EXCEEDED
        again, connack = await Probe.connect(broker.port, Connect("a"))
        assert connack.reason == ReasonCode.SUCCESS
        await again.disconnect()
        _, connack = await Probe.connect(broker.port, Connect("c", V311))
        assert connack.reason == ReasonCode.SUCCESS


async def test_connections_per_listener_and_silent_ones_are_bounded() -> None:
    listener = Listener(host="127.0.0.1", port=0, connections_max=2)
    async with _running(listeners=(listener,), limits=Limits(pending_per_address_max=1)) as broker:
        await Probe.open(broker.port)
        await asyncio.sleep(0.05)
        with pytest.raises(Closed):
            await Probe.connect(broker.port, Connect("c"))


async def test_a_long_connect_is_refused_before_it_is_read() -> None:
    async with _running() as broker:
        probe = await Probe.open(broker.port)
        probe.send_bytes(b"\x10\xff\xff\x7f")
        with pytest.raises(Closed):
            await probe.receive()
        for version, answered in ((V5, True), (V311, False)):
            probe = await Probe.open(broker.port)
            probe.send_bytes(b"\x10\xff\xff\x7f\0\4MQTT" + bytes((version,)) + bytes(40_000))
            if answered:
                assert (await probe.expect(Connack)).reason == ReasonCode.PACKET_TOO_LARGE
            with pytest.raises(Closed):
                await probe.receive()


async def test_a_client_above_its_rate_is_slowed_down_and_loses_nothing() -> None:
    async with _running(limits=Limits(publish_rate_per_s=100.0, publish_burst=5)) as broker:
        s, _ = await Probe.connect(broker.port, Connect("s"))
        p, _ = await Probe.connect(broker.port, Connect("p"))
        await s.subscribe("t")
        started = asyncio.get_running_loop().time()
        for number in range(45):
            p.publish("t", b"%d" % number)
        assert [(await s.expect(Publish)).payload for _ in range(45)] == [b"%d" % n for n in range(45)]
        assert asyncio.get_running_loop().time() - started > 0.3


async def test_location_updates_above_the_rate_are_refused() -> None:
    async with _running(limits=Limits(location_rate_per_s=0.1, location_burst=2)) as broker:
        c, _ = await Probe.connect(broker.port, Connect("c"))
        reasons = []
        for number in range(3):
            c.publish("$geo/location", b"%d,0" % number, 1)
            reasons.append((await c.expect(Puback)).reason)
        assert reasons[2] == ReasonCode.QUOTA_EXCEEDED
        assert broker.core.counts.locations_dropped == 1


async def test_subscriptions_are_bounded() -> None:
    async with _running(limits=Limits(subscriptions_per_client_max=2)) as broker:
        c, _ = await Probe.connect(broker.port, Connect("c"))
        suback = await c.subscribe("a", "b", "c", "a")
        assert [reason >= 0x80 for reason in suback.reasons] == [False, False, True, False]


async def test_the_levels_of_all_subscriptions_are_bounded() -> None:
    async with _running(limits=Limits(subscriptions_per_client_max=3, topic_levels_max=20)) as broker:
        c, _ = await Probe.connect(broker.port, Connect("c"))
        deep = ["/".join(name * 20) for name in "abc"]
        suback = await c.subscribe(*deep, deep[0])
        assert suback.reasons[:2] == (0, 0)
        assert suback.reasons[2:] == (ReasonCode.QUOTA_EXCEEDED, 0)
        c.send(Unsubscribe(c.next_id(), (deep[0],)))
        await c.receive()
        assert (await c.subscribe(deep[2])).reasons == (0,)


class _Riddle:
    """An authentication of two steps: answer the question with its length."""

    def begin(self, connect: Connect) -> Exchange:
        return _Question()


class _Question:
    def step(self, data: bytes | None) -> tuple[bytes | None, str | None]:
        if data is None:
            return b"four", None
        if data == b"4":
            return b"right", "anna"
        raise PermissionError("wrong answer")


async def test_enhanced_authentication_goes_back_and_forth() -> None:
    async with _running() as broker:
        broker.parts.admission.authenticators["riddle"] = _Riddle()
        method = Properties(authentication_method="riddle")
        answer = Properties(authentication_method="riddle", authentication_data=b"4")
        for data, good in ((b"4", True), (b"5", False)):
            probe = await Probe.open(broker.port)
            probe.send(Connect("c", properties=method))
            asked = await probe.expect(Auth)
            assert asked.properties.authentication_data == b"four"
            probe.send(
                Auth(ReasonCode.CONTINUE_AUTHENTICATION, msgspec.structs.replace(answer, authentication_data=data))
            )
            connack = await probe.expect(Connack)
            assert connack.reason == (ReasonCode.SUCCESS if good else ReasonCode.NOT_AUTHORIZED)
            if not good:
                continue
            assert broker.core.clients["c"].user == "anna"
            probe.send(Auth(ReasonCode.REAUTHENTICATE, method))
            await probe.expect(Auth)
            probe.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, answer))
            assert (await probe.expect(Auth)).reason == ReasonCode.SUCCESS
            probe.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, answer))
            assert (await probe.expect(Disconnect)).reason == ReasonCode.PROTOCOL_ERROR


async def test_what_one_client_may_not_publish_another_still_can(files: AuthConfig) -> None:
    """A refused event says nothing about who would have got it."""
    async with _running(auth=files) as broker:
        anna, _ = await _login(broker, "anna")
        bob, _ = await _login(broker, "bob")
        reader, _ = await _login(broker, "bob", "reader")
        await reader.subscribe(SubscribeRequest("bob/#", 1))
        for qos in (0, 1):
            for payload in (b"first", b"second"):
                anna.send(Publish("bob/x", b"not allowed", qos, packet_id=qos))
                anna.send(Publish("anna/x", b"to know that it arrived", 1, packet_id=7))
                while (await anna.receive()).packet_id != 7:  # type: ignore[union-attr]
                    pass
                bob.send(Publish("bob/x", payload, qos, packet_id=qos))
                assert (await reader.expect(Publish)).payload == payload


async def test_a_subscription_can_be_refused(files: AuthConfig, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user anna\ntopic readwrite #\ntopic subscribe anna/#\n")
    async with _running(auth=files) as broker:
        for version, refused in ((V5, ReasonCode.NOT_AUTHORIZED), (V311, ReasonCode.UNSPECIFIED_ERROR)):
            anna, _ = await Probe.connect(broker.port, Connect("anna", version, username="anna", password=b"annaanna"))
            wanted = ("anna/+", "#", "$share/g/#", "$share/g/anna/x", "$geo/enter/+")
            answer = await anna.subscribe(*[SubscribeRequest(each, 1) for each in wanted])
            assert answer.reasons == (1, refused, refused, 1, 1)
            anna.publish("other", b"no")
            anna.publish("anna/a", b"yes")
            assert (await anna.expect(Publish)).payload == b"yes"
