"""A session in parts: what is packed comes out again, what is damaged is refused."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.roaming.session_transfer import (
    PART_BYTES,
    PackedDelivery,
    SessionTransfer,
    pack,
    subscription_keys_of,
    unpack,
)
from geomq.broker.security.acl import ALL_RIGHTS
from geomq.broker.state.client import Client
from geomq.broker.storage.records import SessionRecord, SubscriptionRecord
from geomq.errors import ProtocolError
from geomq.geo import Circle, Fence, Location
from geomq.mqtt.codec.packets import Publish, Will
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.session.handshake import Policy
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.outbound import Phase
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.subscriptions import Subscription, Terms
from geomq.routing.core.model import BrokerId, EventId

FENCE = Circle(Location(48.9, 2.4), 5_000.0)
NOW_S = 30.0
HAD = (EventId(BrokerId("paris"), 3, 7),)


def traveller(*payloads: bytes) -> Client:
    session = Session("r", Policy())
    session.expiry_s, session.expires_at = 300, 1_000.0
    client = Client(session, "alice", ALL_RIGHTS)
    client.location, client.asks = Location(1.0, 2.0), True
    client.define_fence("home", FENCE)
    for whole in ("t", "$share/crew/$geo/from/home/u", "$geo/enter/#"):
        session.subscriptions[whole] = Subscription(whole, qos=1, identifier=4)
    session.accept(Publish("x", b"", 2, packet_id=9), 0.0)
    properties = Properties(message_expiry_interval=60, user_properties=(("k", "v"),))
    for payload in payloads:
        message = ApplicationMessage("t", payload, 2, True, properties, 60.0)
        session.deliver(Fanout(message, 0.0), Terms(2, True, (4,)))
    return client


def packed(client: Client, subscribed: list[tuple[str, Fence | None]], had: tuple[EventId, ...]) -> list[bytes]:
    return pack(client, subscribed, had, client.session.unfinished()[0], now=NOW_S)


def test_everything_a_session_holds_arrives() -> None:
    client = traveller(b"a", b"b")
    stored, had = unpack(b"".join(packed(client, [("t", FENCE)], HAD)), now=NOW_S + 5_000.0)
    assert had == HAD
    assert stored.record == SessionRecord(
        user="alice", version=5, expiry_s=300, expires_at=6_000.0, location=(1.0, 2.0), asks=True
    )
    assert list(stored.subscriptions) == ["t", "$share/crew/$geo/from/home/u", "$geo/enter/#"]
    assert stored.subscriptions["t"].fence is not None
    assert stored.subscriptions["$geo/enter/#"].fence is None
    assert list(stored.fences) == ["home"]
    assert stored.receipts == [9]
    assert [(d.number, d.message.payload, d.qos, d.retain, d.identifiers) for d in stored.deliveries] == [
        (1, b"a", 2, True, (4,)),
        (2, b"b", 2, True, (4,)),
    ]
    assert [d.message.expires_at for d in stored.deliveries] == [5_060.0] * 2, "the time that is left counts"
    assert stored.deliveries[0].message.properties.user_properties == (("k", "v"),)


def test_packet_identifiers_and_phases_arrive() -> None:
    client = traveller(b"a", b"b", b"c")
    session = client.session
    deliveries, _ = session.unfinished()
    deliveries[0].packet_id, deliveries[0].phase = 5, Phase.RELEASED
    deliveries[1].packet_id, deliveries[1].phase = 6, Phase.SENT
    stored, _ = unpack(b"".join(packed(client, [], ())), now=NOW_S)
    assert [(d.packet_id, d.phase) for d in stored.deliveries] == [
        (5, Phase.RELEASED),
        (6, Phase.SENT),
        (0, Phase.QUEUED),
    ]


def test_a_large_session_comes_in_parts_none_larger_than_a_frame_allows() -> None:
    parts = packed(traveller(*[b"x" * 600_000] * 4), [], ())
    assert len(parts) == 3
    assert max(len(part) for part in parts) == PART_BYTES
    stored, _ = unpack(b"".join(parts), now=NOW_S)
    assert len(stored.deliveries) == 4


def test_each_prefix_has_a_subscription_key_of_its_own() -> None:
    stored, _ = unpack(b"".join(packed(traveller(), [], ())), now=NOW_S)
    assert list(subscription_keys_of("r", stored)) == ["r", "r\0$share/crew/$geo/from/home/"]


def test_a_filter_that_is_none_is_refused() -> None:
    bad = SubscriptionRecord(Subscription("$geo/from/x"))
    transfer = SessionTransfer(SessionRecord(), (bad,), {}, (), (), ())
    with pytest.raises(ProtocolError, match="unreadable session"):
        unpack(msgspec.msgpack.encode(transfer), now=NOW_S)


RECORD = SessionRecord()


def transfer_of(
    record: SessionRecord = RECORD,
    wanted: Subscription | None = None,
    message: ApplicationMessage | None = None,
    *,
    qos: int = 1,
    packet_id: int = 0,
    identifiers: tuple[int, ...] = (),
    receipts: tuple[int, ...] = (),
) -> bytes:
    deliveries = () if message is None else (PackedDelivery(message, qos, False, identifiers, packet_id, False),)
    wishes = () if wanted is None else (SubscriptionRecord(wanted),)
    return msgspec.msgpack.encode(SessionTransfer(record, wishes, {}, deliveries, receipts, ()))


GOOD = ApplicationMessage("t", b"", 1)


@pytest.mark.parametrize(
    "data",
    [
        transfer_of(message=ApplicationMessage("a/#", b"", 1)),
        transfer_of(message=ApplicationMessage("", b"", 1)),
        transfer_of(message=ApplicationMessage("t", b"", 3)),
        transfer_of(message=ApplicationMessage("t", b"", 1, properties=Properties(message_expiry_interval=2**32))),
        transfer_of(message=ApplicationMessage("t", b"", 1, properties=Properties(payload_format_indicator=7))),
        transfer_of(message=ApplicationMessage("t", b"", 1, properties=Properties(response_topic="+"))),
        transfer_of(message=ApplicationMessage("t", b"", 1, expires_at=math.inf)),
        transfer_of(message=GOOD, qos=3),
        transfer_of(message=GOOD, packet_id=65_536),
        transfer_of(message=GOOD, identifiers=(0,)),
        transfer_of(receipts=(0,)),
        transfer_of(wanted=Subscription("a/#/b")),
        transfer_of(wanted=Subscription("$share/g/a+")),
        transfer_of(wanted=Subscription("a", qos=3)),
        transfer_of(wanted=Subscription("a", identifier=-1)),
        transfer_of(SessionRecord(version=7)),
        transfer_of(SessionRecord(expiry_s=-1)),
        transfer_of(SessionRecord(expires_at=math.nan)),
        transfer_of(SessionRecord(location=(91.0, 0.0))),
        transfer_of(SessionRecord(will=Will("t", b"", 0, False))),
    ],
)
def test_what_no_client_can_have_is_refused(data: bytes) -> None:
    assert unpack(transfer_of(SessionRecord(location=(90.0, 0.0)), Subscription("$share/g/a/#", 2), GOOD), now=NOW_S)
    with pytest.raises(ProtocolError, match="unreadable session"):
        unpack(data, now=NOW_S)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_session_is_a_session_or_refused(data: st.DataObject) -> None:
    raw = bytearray(b"".join(packed(traveller(b"a"), [("t", FENCE)], HAD)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        stored, _ = unpack(bytes(raw), now=NOW_S)
    except ProtocolError:
        return
    assert isinstance(stored.record, SessionRecord)
