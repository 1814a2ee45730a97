"""The inlet against real brokers: what is spooled, when it is acknowledged, and what a repeat becomes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.streaming.live import geomq_broker, mosquitto_broker, publish, wait_until

from geomq.errors import GeomqError, ProtocolError, UsageError
from geomq.mqtt.encode import encode
from geomq.mqtt.packets import Publish
from geomq.mqtt.properties import Properties
from geomq.mqtt.types import V5, V311
from geomq.pipeline.streaming.decode import Columns, Origin, packets_of
from geomq.pipeline.streaming.inlet import Inlet, Sorter, content_of
from geomq.pipeline.streaming.options import source_options
from geomq.pipeline.streaming.spool import Spool, read_chunk


def inlet(port: int, spool: Path, **more: str) -> Inlet:
    options = source_options({"brokers": f"127.0.0.1:{port}", "topic": "s/#", "spool": str(spool), **more})
    made = Inlet(options, options.brokers[0], 0)
    _ = made.spool
    made.start()
    assert made.connected.wait(30), made.trouble
    return made


def rows(spool: Spool) -> list[tuple[str, bytes]]:
    """Event ids and payloads."""
    columns = Columns(Origin("address", "session", V5))
    for chunk in spool.chunks:
        packets = read_chunk(spool.directory, chunk)
        columns.add(packets, packets_of(packets), chunk.first_id, chunk.arrived_us)
    batch = columns.batch().to_pydict()
    return list(zip(batch["event_id"], batch["payload"], strict=True))


def count(spool: Spool) -> int:
    return sum(chunk.packets for chunk in spool.chunks)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    with geomq_broker(tmp_path / "broker") as port:
        yield port


def test_what_spark_has_not_committed_is_not_acknowledged_and_a_repeat_is_not_spooled_twice(
    broker: int, tmp_path: Path
) -> None:
    first = inlet(broker, tmp_path / "spool")
    events = [("s/1", b"%d" % i) for i in range(300)]
    publish(broker, events)
    assert wait_until(lambda: count(first.spool) == 300)
    first.stop()
    again = inlet(broker, tmp_path / "spool")
    publish(broker, [("s/1", b"new")])
    assert wait_until(lambda: count(again.spool) == 301)
    assert len({event for event, _ in rows(again.spool)}) == 301
    again.commit(again.spool.end)
    assert wait_until(lambda: not again._held)
    again.stop()
    third = inlet(broker, tmp_path / "spool")
    publish(broker, [("s/1", b"last")])
    assert wait_until(lambda: rows(third.spool)[-1][1] == b"last")
    assert count(third.spool) == 302
    third.stop()


def test_without_its_spool_an_inlet_gets_again_what_spark_had_not_committed(broker: int, tmp_path: Path) -> None:
    first = inlet(broker, tmp_path / "spool")
    publish(broker, [("s/1", b"%d" % i) for i in range(50)])
    assert wait_until(lambda: count(first.spool) == 50)
    before = rows(first.spool)
    first.stop()
    anew = inlet(broker, tmp_path / "elsewhere")
    assert wait_until(lambda: count(anew.spool) == 50)
    assert rows(anew.spool) == before
    assert anew.spool.begin > first.spool.begin
    anew.stop()


def test_a_reader_with_a_location_gets_what_is_fenced_around_it(broker: int, tmp_path: Path) -> None:
    there = inlet(broker, tmp_path / "spool", session="there", location="52.5,13.4")
    nowhere = inlet(broker, tmp_path / "spool", session="nowhere")
    around = Properties(user_properties=(("geo-fence", "geo:52.5,13.4;u=1000"),))
    publish(broker, [("s/1", b"fenced")], properties=around)
    publish(broker, [("s/1", b"for all")])
    assert wait_until(lambda: count(there.spool) == 2 and count(nowhere.spool) == 1)
    there.stop()
    nowhere.stop()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_any_broker_will_do(version: str, tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        reading = inlet(port, tmp_path / "spool", version=version)
        assert reading._holds is False
        publish(port, [("s/1", b"%d" % i) for i in range(500)])
        assert wait_until(lambda: count(reading.spool) == 500)
        reading.stop()
        publish(port, [("s/1", b"while away")])
        reading = inlet(port, tmp_path / "spool", version=version)
        assert wait_until(lambda: count(reading.spool) == 501)
        reading.stop()


def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = inlet(port, tmp_path / "spool")
        publish(port, [("s/1", b"before")])
    with geomq_broker(tmp_path / "broker", port=port):
        publish(port, [("s/1", b"after")])
        assert wait_until(lambda: {payload for _, payload in rows(reading.spool)} == {b"before", b"after"})
        assert not reading.lost
        reading.stop()


def test_a_broker_that_forgot_the_session_is_noticed(tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        inlet(port, tmp_path / "spool").stop()
    with mosquitto_broker(tmp_path / "other") as other:
        folder = next((tmp_path / "spool").glob("*/*"))
        folder.rename(folder.parent / f"127.0.0.1_{other}_0")
        options = {"session": folder.parent.name}
        reading = inlet(other, tmp_path / "spool", **options)
        assert reading.lost
        reading.stop()


def test_trouble_is_one_line(broker: int, tmp_path: Path) -> None:
    options = source_options({"brokers": "127.0.0.1:1", "topic": "t", "spool": str(tmp_path)})
    nobody = Inlet(options, options.brokers[0], 0)
    nobody.run()
    assert "127.0.0.1:1 cannot be reached" in str(nobody.trouble)
    nobody.stop()
    inlet(broker, tmp_path / "spool", session="mine").stop()
    options = source_options(
        {"brokers": f"127.0.0.1:{broker}", "topic": "t", "spool": str(tmp_path / "spool"), "session": "mine"}
    )
    other = Inlet(options, options.brokers[0], 0)
    with pytest.raises(UsageError, match="was opened for another topic or fence"):
        _ = other.spool
    other.stop()


def test_a_fence_needs_a_broker_that_knows_fences(tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        options = source_options(
            {"brokers": f"127.0.0.1:{port}", "topic": "t", "spool": str(tmp_path), "fence": "geo:1,2;u=3"}
        )
        asking = Inlet(options, options.brokers[0], 0)
        asking.run()
        assert "option fence needs GeoMQ" in str(asking.trouble)
        asking.stop()


# Sorting bytes, without a broker.


def packet(payload: bytes, packet_id: int, *, dup: bool = False, expiry: int | None = None) -> bytes:
    properties = Properties(message_expiry_interval=expiry)
    return encode(Publish("t", payload, 1, False, dup, packet_id, properties), V5)


def test_bytes_may_be_cut_anywhere(tmp_path: Path) -> None:
    data = b"".join([packet(b"x" * size, 1 + size) for size in (0, 1, 200, 20_000)]) + b"\xd0\0"
    spool = Spool(tmp_path, keep=10)
    sorter, rest = Sorter(spool, V5, holds=False), b""
    for i in range(0, len(data), 97):
        rest += data[i : i + 97]
        rest = rest[sorter.take(rest).end :]
    assert rest == b""
    assert [len(payload) for _, payload in rows_after(spool)] == [0, 1, 200, 20_000]
    spool.close()


def rows_after(spool: Spool) -> list[tuple[str, bytes]]:
    spool.sync()
    return rows(spool)


def test_a_repeat_whose_acknowledgement_may_be_lost_keeps_its_id(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    taken = Sorter(spool, V5, holds=False).take(packet(b"a", 1, expiry=9) + packet(b"b", 2))
    assert b"".join(acks for _, acks in taken.acks) == b"\x40\x02\0\x01\x40\x02\0\x02"
    spool.sync()
    # The connection broke: the first comes again, the second identifier is used for something new.
    repeated = packet(b"a", 1, dup=True, expiry=3) + packet(b"c", 2, dup=True) + packet(b"d", 3)
    Sorter(spool, V5, holds=False).take(repeated)
    ids, payloads = zip(*rows_after(spool), strict=True)
    assert payloads == (b"a", b"b", b"a", b"c", b"d")
    assert ids[0] == ids[2]
    assert len(set(ids)) == 4
    spool.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x32\xff\xff\xff\xff\x01",
        b"\x32\x02\xff\xff",
        b"\x32\x00",
        b"\x36\x05\0\1t\0\1",
        b"\x10\x00",
        b"\x32\xff\xff\xff\x7f",
    ],
)
def test_nonsense_ends_the_connection(data: bytes, tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    with pytest.raises(ProtocolError):
        Sorter(spool, V5, holds=False).take(data)
    assert spool.chunks == []
    spool.close()


def test_another_client_in_the_session_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path, keep=10)
    with pytest.raises(GeomqError, match="running twice"):
        Sorter(spool, V5, holds=False).take(b"\xe0\x01\x8e")
    with pytest.raises(ConnectionResetError):
        Sorter(spool, V5, holds=False).take(b"\xe0\x00")
    spool.close()


def test_a_fingerprint_ignores_properties_but_not_the_payload() -> None:
    assert content_of(packet(b"a", 1, expiry=3), V5) == content_of(packet(b"a", 1, dup=True), V5)
    assert content_of(packet(b"a", 1), V5) != content_of(packet(b"b", 1), V5)
    plain = encode(Publish("t", b"a", 1, packet_id=1), V311)
    assert content_of(plain, V311) == content_of(packet(b"a", 1), V5)
