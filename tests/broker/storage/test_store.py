"""The store against a plain model: whatever was written is found again, once, and nothing else."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.storage.errors import StoreError, StoreFull
from geomq.broker.storage.memory import MemoryStore
from geomq.broker.storage.records import (
    FORMAT_KEY,
    RetainedRecord,
    SessionRecord,
    StoredState,
    SubscriptionRecord,
    named,
    split_named,
)
from geomq.broker.storage.store import Store, open_store
from geomq.broker.storage.writes import Writes
from geomq.mqtt.codec.packets import Will
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.session.changes import (
    Change,
    DeliveryAdded,
    DeliveryReleased,
    DeliveryRemoved,
    DeliverySent,
    ReceiptAdded,
    ReceiptRemoved,
)
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.outbound import Phase
from geomq.mqtt.session.subscriptions import Subscription


class DictDisk:
    """A disk that is a dict: what was written is there, what was only collected is not."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.full = False
        self.free_bytes_min = 0

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        return sorted(self.data.items())

    def write(self, writes: Writes) -> None:
        if self.full:
            raise StoreFull("full")

        def delete_range(begin: bytes, end: bytes) -> None:
            for key in [key for key in self.data if begin <= key < end]:
                del self.data[key]

        writes.replay(self.data.__setitem__, lambda key: self.data.pop(key, None), delete_range)

    def sync(self) -> None:
        pass

    def has_room(self) -> bool:
        return not self.full

    def close(self) -> None:
        pass


def reload(disk: DictDisk) -> StoredState:
    return Store(disk).load()


def added(client_id: str, number: int, message: ApplicationMessage, packet_id: int = 0) -> DeliveryAdded:
    return DeliveryAdded(client_id, number, message, 1, False, (), packet_id)


FULL_MESSAGE = ApplicationMessage(
    "a/b",
    b"\x00payload\xff",
    2,
    True,
    Properties(user_properties=(("k", "v"), ("k", "w")), correlation_data=b"\x00", response_topic="r"),
    1_700_000_000.25,
)


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    assert store.load() == StoredState(epoch=1)
    record = SessionRecord(
        "alice", 4, 3600, 1.5, (52.5, 13.4), Will("w", b"gone", 1, True, Properties(will_delay_interval=5)), 9.0, b"x"
    )
    subscription = SubscriptionRecord(Subscription("a/#", 1, True, True, 2, 7), "geo:1,2;u=3")
    about = RetainedRecord("geo:1,2;u=3", (1.0, 2.0), "pub", "bob", b"v")
    store.put_session("c", record)
    store.put_subscription("c", subscription)
    store.put_fence("c", "home", "POLYGON((0 0,1 0,1 1,0 0))")
    store.record(
        [
            DeliveryAdded("c", 1, FULL_MESSAGE, 2, True, (3, 4), 0),
            DeliveryAdded("c", 2, FULL_MESSAGE, 1, False, (), 77),
            DeliverySent("c", 1, 5),
            DeliveryReleased("c", 1, 5),
            ReceiptAdded("c", 65_535),
        ]
    )
    store.put_retained(FULL_MESSAGE, about)
    store.put_note("roaming", b"k", b"v")
    assert store.messages == 1
    store.close()

    again = open_store(tmp_path / "store")
    state = again.load()
    assert state.epoch == 2
    session = state.sessions["c"]
    assert session.record == record
    assert session.subscriptions == {"a/#": subscription}
    assert session.fences == {"home": "POLYGON((0 0,1 0,1 1,0 0))"}
    assert session.receipts == [65_535]
    first, second = session.deliveries
    assert (first.number, first.qos, first.retain, first.identifiers) == (1, 2, True, (3, 4))
    assert (first.packet_id, first.phase) == (5, Phase.RELEASED)
    assert (second.number, second.packet_id, second.phase) == (2, 77, Phase.SENT)
    assert first.message == FULL_MESSAGE
    assert first.message is second.message is state.retained["a/b"][0]
    assert state.retained["a/b"][1] == about
    assert state.notes == {"roaming": {b"k": b"v"}}
    again.close()


def test_a_message_goes_with_the_last_that_points_to_it() -> None:
    disk = DictDisk()
    store = Store(disk)
    store.load()
    empty = dict(disk.data)
    message = ApplicationMessage("t", b"x" * 100, 1)
    store.put_session("c", SessionRecord())
    store.record([added("c", 1, message), added("d", 1, message)])
    store.put_retained(message)
    store.commit()
    assert sum(b"x" * 100 in value for value in disk.data.values()) == 1
    store.record([DeliveryRemoved("c", 1), DeliveryRemoved("c", 1), DeliveryRemoved("nobody", 1)])
    store.put_retained(ApplicationMessage("t", b"other", 1))
    store.commit()
    assert any(b"x" * 100 in value for value in disk.data.values())
    store.delete_session("d")
    store.delete_session("c")
    store.delete_retained("t")
    store.delete_retained("t")
    store.commit()
    assert disk.data == empty
    assert store.messages == 0


def test_what_came_and_went_within_a_tick_never_reaches_the_disk() -> None:
    disk = DictDisk()
    store = Store(disk)
    store.load()
    before = dict(disk.data)
    store.record([added("c", 1, ApplicationMessage("t", b"x")), DeliverySent("c", 1, 9), DeliveryRemoved("c", 1)])
    assert not store.dirty
    store.commit()
    assert disk.data == before


def test_a_session_begun_anew_in_the_same_tick_keeps_only_the_new() -> None:
    disk = DictDisk()
    store = Store(disk)
    store.load()
    store.put_session("c", SessionRecord("old"))
    store.put_subscription("c", SubscriptionRecord(Subscription("old/#")))
    store.record([added("c", 1, ApplicationMessage("t", b"old")), ReceiptAdded("c", 1)])
    store.delete_session("c")
    store.put_session("c", SessionRecord("new"))
    store.record([added("c", 1, ApplicationMessage("t", b"new")), ReceiptAdded("c", 2)])
    store.commit()
    session = reload(disk).sessions["c"]
    assert session.record.user == "new"
    assert session.subscriptions == {}
    assert [delivery.message.payload for delivery in session.deliveries] == [b"new"]
    assert session.receipts == [2]


def test_a_full_disk_keeps_the_writes_for_later() -> None:
    disk = DictDisk()
    store = Store(disk)
    store.load()
    disk.full = True
    store.put_session("c", SessionRecord())
    with pytest.raises(StoreFull):
        store.commit()
    assert store.full
    assert store.dirty
    assert not store.has_room()
    disk.full = False
    store.record([added("c", 1, ApplicationMessage("t", b"x"))])
    store.commit()
    assert not store.full
    assert store.has_room()
    assert len(reload(disk).sessions["c"].deliveries) == 1


def test_what_lost_its_session_or_its_message_is_swept() -> None:
    disk = DictDisk()
    store = Store(disk)
    store.load()
    store.record([added("ghost", 1, ApplicationMessage("t", b"x")), ReceiptAdded("ghost", 4)])
    store.put_subscription("ghost", SubscriptionRecord(Subscription("a")))
    store.commit()
    assert reload(disk).sessions == {}
    reload(disk)
    assert {key[:1] for key in disk.data} == {b"\0"}


names = st.sampled_from(["", "c", "cc", "ü", "c\x00", "x" * 300])
numbers = st.integers(1, 4)
KINDS = ["session", "subscribe", "fence", "add", "sent", "remove", "receipt", "release"]
KINDS += ["retain", "unretain", "delete", "commit", "crash"]
steps = st.lists(st.tuples(st.sampled_from(KINDS), names, numbers), max_size=60)


class Model:
    """What should be found after a crash, as plain dicts."""

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, dict[object, object]]] = {}
        self.retained: dict[str, bytes] = {}

    def of(self, state: StoredState) -> object:
        return (
            {
                name: {
                    "subscribe": {key: value.fence for key, value in one.subscriptions.items()},
                    "fence": dict(one.fences),
                    "add": {d.number: (d.message.payload, d.packet_id) for d in one.deliveries},
                    "receipt": dict.fromkeys(one.receipts),
                }
                for name, one in state.sessions.items()
            },
            {topic: message.payload for topic, (message, _) in state.retained.items()},
        )

    def copy(self) -> object:
        return (
            {name: {kind: dict(one) for kind, one in kinds.items()} for name, kinds in self.sessions.items()},
            dict(self.retained),
        )


def apply(store: Store, model: Model, pool: list[ApplicationMessage], kind: str, name: str, number: int) -> None:
    session = model.sessions.get(name)
    message = pool[number % len(pool)]
    if kind == "session":
        store.put_session(name, SessionRecord())
        model.sessions.setdefault(name, {"subscribe": {}, "fence": {}, "add": {}, "receipt": {}})
    elif kind == "retain":
        store.put_retained(message)
        model.retained[message.topic] = message.payload
    elif kind == "unretain":
        store.delete_retained(message.topic)
        model.retained.pop(message.topic, None)
    elif session is not None:
        apply_to_session(store, model, session, kind, name, number, message)


def apply_to_session(
    store: Store,
    model: Model,
    session: dict[str, dict[object, object]],
    kind: str,
    name: str,
    number: int,
    message: ApplicationMessage,
) -> None:
    change: Change | None = None
    if kind == "subscribe":
        store.put_subscription(name, SubscriptionRecord(Subscription(f"f/{number}"), f"fence {number}"))
        session["subscribe"][f"f/{number}"] = f"fence {number}"
    elif kind == "fence":
        store.put_fence(name, f"n{number}", name)
        session["fence"][f"n{number}"] = name
    elif kind == "add":
        fresh = max((key for key in session["add"] if isinstance(key, int)), default=0) + 1
        change = added(name, fresh, message)
        session["add"][fresh] = (message.payload, 0)
    elif kind == "sent" and number in session["add"]:
        change = DeliverySent(name, number, number + 10)
        session["add"][number] = (session["add"][number][0], number + 10)  # type: ignore[index]
    elif kind == "remove":
        change = DeliveryRemoved(name, number)
        session["add"].pop(number, None)
    elif kind == "receipt":
        change = ReceiptAdded(name, number)
        session["receipt"][number] = None
    elif kind == "release":
        change = ReceiptRemoved(name, number)
        session["receipt"].pop(number, None)
    elif kind == "delete":
        store.delete_session(name)
        del model.sessions[name]
    if change is not None:
        store.record([change])


@settings(max_examples=400)
@given(steps)
def test_after_any_crash_exactly_the_committed_is_there(script: list[tuple[str, str, int]]) -> None:
    disk, model = DictDisk(), Model()
    store = Store(disk)
    store.load()
    pool = [ApplicationMessage(f"t/{number}", b"%d" % number, 1) for number in range(3)]
    committed = model.copy()
    for kind, name, number in script:
        if kind == "commit":
            store.commit()
            committed = model.copy()
        elif kind == "crash":
            store.commit()
            committed = model.copy()
            store = Store(disk)
            assert model.of(store.load()) == committed
            pool = [ApplicationMessage(one.topic, one.payload, 1) for one in pool]
        else:
            apply(store, model, pool, kind, name, number)
    assert model.of(reload(disk)) == committed


@given(names, st.binary(max_size=9))
def test_names_in_keys_come_back(name: str, rest: bytes) -> None:
    assert split_named(named(b"d", name) + rest) == (name, rest)


def test_a_newer_format_is_refused_in_one_line() -> None:
    disk = DictDisk()
    Store(disk).load()
    disk.data[FORMAT_KEY] = b"2"
    with pytest.raises(StoreError, match=r"^the store was written by a newer GeoMQ \(format 2, this one reads 1\)$"):
        reload(disk)


@pytest.mark.parametrize("key", [b"?", b"d", b"d\xff\xffx", b"mX", b"r", b"S\x00\x01c", b"\x00format"])
def test_damage_is_reported_not_skipped(key: bytes) -> None:
    disk = DictDisk()
    Store(disk).load()
    disk.data[key] = b"\xc1garbage"
    with pytest.raises(StoreError, match="the store is damaged"):
        reload(disk)


def test_a_folder_of_somebody_else_is_refused() -> None:
    disk = DictDisk()
    disk.data[named(b"n", "x")] = b""
    with pytest.raises(StoreError, match="not written by GeoMQ"):
        reload(disk)


def test_a_memory_store_takes_the_same_calls_and_keeps_nothing() -> None:
    store = MemoryStore()
    assert store.load() == StoredState(epoch=1)
    store.put_session("c", SessionRecord())
    store.record([added("c", 1, ApplicationMessage("t"))])
    store.put_retained(ApplicationMessage("t"))
    store.delete_retained("t")
    store.delete_session("c")
    assert not store.dirty
    assert not store.durable
    assert store.has_room()
    store.close()
