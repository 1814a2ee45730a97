"""What is kept of a damaged store fits together, and the rest is named."""

import msgspec

from geomq.broker.storage.load import read_state
from geomq.broker.storage.mend import Mended
from geomq.broker.storage.records import (
    DELIVERY,
    EPOCH_KEY,
    MESSAGE,
    NOTE,
    RECEIPT,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    DeliveryRecord,
    RetainedEntry,
    RetainedRecord,
    SessionRecord,
    SubscriptionRecord,
    named,
    number_bytes,
)
from geomq.broker.storage.store import EPOCH_SHIFT
from geomq.broker.storage.writes import Writes
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.subscriptions import Subscription

encode = msgspec.msgpack.encode
NUMBER = 7 << EPOCH_SHIFT


def _items() -> dict[bytes, bytes]:
    delivery = encode(DeliveryRecord(NUMBER, 1, False, (), 0, False))
    return {
        MESSAGE + number_bytes(NUMBER): encode(ApplicationMessage("t", b"x", 1)),
        named(SESSION, "s"): encode(SessionRecord(expiry_s=9)),
        named(SUBSCRIPTION, "s") + b"t": encode(SubscriptionRecord(Subscription("t", 1))),
        named(DELIVERY, "s") + number_bytes(1): delivery,
        named(DELIVERY, "s") + number_bytes(2): encode(DeliveryRecord(NUMBER + 1, 1, False, (), 0, False)),
        named(DELIVERY, "gone") + number_bytes(1): delivery,
        named(RECEIPT, "gone") + b"\0\1": b"",
        RETAINED + b"r": encode(RetainedEntry(NUMBER, RetainedRecord())),
        RETAINED + b"lost": encode(RetainedEntry(5, RetainedRecord())),
        named(NOTE, "n") + b"k": b"v",
        named(SESSION, "garbled"): b"\xff\xff",
        b"?": b"",
    }


def test_what_fits_together_can_be_loaded_and_the_rest_is_listed() -> None:
    mended = Mended(_items())
    assert mended.kept == {
        "sessions": 1,
        "subscriptions": 1,
        "queued messages": 1,
        "retained messages": 1,
        "notes about peers and others": 1,
    }
    assert sorted(mended.lost) == [
        "a record of an unknown kind, key b'?'",
        "an unreadable record, key b'S\\x00\\x07garbled'",
        "client 'gone': 1 queued messages",
        "client 'gone': 1 receipts of QoS 2 messages",
        "client 's': 1 queued messages",
        "retained message on 'lost'",
    ]
    state = read_state(sorted(mended.items.items()), Writes()).state
    assert len(state.sessions["s"].deliveries) == 1
    assert list(state.retained) == ["r"]


def test_message_numbers_stay_behind_the_start_count_although_that_is_lost() -> None:
    assert int.from_bytes(Mended(_items()).items[EPOCH_KEY]) == 7
    assert int.from_bytes(Mended({**_items(), EPOCH_KEY: number_bytes(9)}).items[EPOCH_KEY]) == 9
