"""The receiver against real brokers: what is spooled, when it is acknowledged, and what a repeat becomes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.pipeline.streaming.live import geomq_broker, mosquitto_broker, publish, wait_until

from geomq.errors import UsageError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Disconnect, Suback
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.pipeline.streaming.connection import Connection, RefusedForGood
from geomq.pipeline.streaming.decode import Columns, Origin, packets_of
from geomq.pipeline.streaming.options import source_options
from geomq.pipeline.streaming.receiver import Receiver
from geomq.pipeline.streaming.spool import Chunk, Spool, read_chunk


def receiver(port: int, spool: Path, **more: str) -> Receiver:
    options = source_options({"brokers": f"127.0.0.1:{port}", "topic": "s/#", "spool": str(spool), **more})
    made = Receiver(options, options.brokers[0], 0)
    _ = made.spool
    made.start()
    assert made.connected.wait(30), made.trouble
    return made


def rows(spool: Spool) -> list[tuple[str, bytes]]:
    """Event ids and payloads of what is safe; what follows may be half written."""
    columns = Columns(Origin("address", "session", V5))
    for chunk in safe(spool):
        packets = read_chunk(spool.directory, chunk)
        columns.add(packets, packets_of(packets), chunk.first_id, chunk.arrived_us)
    batch = columns.batch().to_pydict()
    return list(zip(batch["event_id"], batch["payload"], strict=True))


def count(spool: Spool) -> int:
    return sum(chunk.packets for chunk in safe(spool))


def safe(spool: Spool) -> list[Chunk]:
    end = spool.end
    return [chunk for chunk in spool.chunks if chunk.end <= end]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    with geomq_broker(tmp_path / "broker") as port:
        yield port


def test_what_spark_has_not_committed_is_not_acknowledged_and_a_repeat_is_not_spooled_twice(
    broker: int, tmp_path: Path
) -> None:
    first = receiver(broker, tmp_path / "spool")
    events = [("s/1", b"%d" % i) for i in range(300)]
    publish(broker, events)
    assert wait_until(lambda: count(first.spool) == 300)
    first.stop()
    again = receiver(broker, tmp_path / "spool")
    publish(broker, [("s/1", b"new")])
    assert wait_until(lambda: count(again.spool) == 301)
    assert len({event for event, _ in rows(again.spool)}) == 301
    again.commit(again.spool.end)
    assert wait_until(lambda: not again._held)
    again.stop()
    third = receiver(broker, tmp_path / "spool")
    publish(broker, [("s/1", b"last")])
    assert wait_until(lambda: rows(third.spool)[-1][1] == b"last")
    assert count(third.spool) == 302
    third.stop()


def test_without_its_spool_a_receiver_gets_again_what_spark_had_not_committed(broker: int, tmp_path: Path) -> None:
    first = receiver(broker, tmp_path / "spool")
    publish(broker, [("s/1", b"%d" % i) for i in range(50)])
    assert wait_until(lambda: count(first.spool) == 50)
    before = rows(first.spool)
    first.stop()
    anew = receiver(broker, tmp_path / "elsewhere")
    assert wait_until(lambda: count(anew.spool) == 50)
    assert rows(anew.spool) == before
    assert anew.spool.begin > first.spool.begin
    anew.stop()


def test_a_reader_with_a_location_gets_what_is_fenced_around_it(broker: int, tmp_path: Path) -> None:
    there = receiver(broker, tmp_path / "spool", session="there", location="52.5,13.4")
    nowhere = receiver(broker, tmp_path / "spool", session="nowhere")
    around = Properties(user_properties=(("geo-fence", "geo:52.5,13.4;u=1000"),))
    publish(broker, [("s/1", b"fenced")], properties=around)
    publish(broker, [("s/1", b"for all")])
    assert wait_until(lambda: count(there.spool) == 2 and count(nowhere.spool) == 1)
    there.stop()
    nowhere.stop()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_any_broker_will_do(version: str, tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool", version=version)
        assert reading._holds is False
        publish(port, [("s/1", b"%d" % i) for i in range(500)])
        assert wait_until(lambda: count(reading.spool) == 500)
        reading.stop()
        publish(port, [("s/1", b"while away")])
        reading = receiver(port, tmp_path / "spool", version=version)
        assert wait_until(lambda: count(reading.spool) == 501)
        reading.stop()


def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        publish(port, [("s/1", b"before")])
    with geomq_broker(tmp_path / "broker", port=port):
        publish(port, [("s/1", b"after")])
        assert wait_until(lambda: {payload for _, payload in rows(reading.spool)} == {b"before", b"after"})
        assert not reading.lost
        reading.stop()


def test_a_broker_that_forgot_the_session_is_noticed(tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        receiver(port, tmp_path / "spool").stop()
    with mosquitto_broker(tmp_path / "other") as other:
        folder = next((tmp_path / "spool").glob("*/*"))
        folder.rename(folder.parent / f"127.0.0.1_{other}_0")
        options = {"session": folder.parent.name}
        # Said until the user has taken note, however often somebody restarts the query.
        for more, lost in (({}, True), ({}, True), ({"failOnDataLoss": "false"}, False), ({}, False)):
            reading = receiver(other, tmp_path / "spool", **options, **more)
            assert reading.lost is lost
            reading.stop()


def test_a_session_that_was_opened_but_never_subscribed_is_subscribed(broker: int, tmp_path: Path) -> None:
    options = source_options({"brokers": f"127.0.0.1:{broker}", "topic": "s/#", "session": "mine"})
    # The driver was killed, or the subscription refused, right after CONNECT.
    kept = Properties(session_expiry_interval=3600)
    Connection.open(options.brokers[0], options.login, "mine-0", clean=False, keep_alive_s=60, properties=kept).close()
    reading = receiver(broker, tmp_path / "spool", session="mine")
    assert wait_until(lambda: (reading.directory / "subscribed").exists())
    publish(broker, [("s/1", b"heard")])
    assert wait_until(lambda: count(reading.spool) == 1)
    reading.stop()


@pytest.mark.parametrize(("before", "now"), [("1", "2"), ("2", "1"), ("3", "2")])
def test_members_of_a_shared_session_are_not_left_behind(before: str, now: str, tmp_path: Path) -> None:
    def member(sessions: str) -> Receiver:
        said = {"brokers": "127.0.0.1:1", "topic": "s/#", "spool": str(tmp_path), "session": "m", "sessions": sessions}
        options = source_options(said)
        return Receiver(options, options.brokers[0], 0)

    for sessions in (before, before):
        made = member(sessions)
        assert made.spool.end
        made.stop()
    changed = member(now)
    with pytest.raises(UsageError, match=f"session 'm' was opened with option sessions {before}"):
        _ = changed.spool
    changed.stop()


def test_a_shared_session_may_get_more_members(tmp_path: Path) -> None:
    for sessions in ("2", "4"):
        said = {"brokers": "127.0.0.1:1", "topic": "s/#", "spool": str(tmp_path), "session": "m", "sessions": sessions}
        options = source_options(said)
        made = Receiver(options, options.brokers[0], 0)
        assert made.spool.end
        made.stop()


def test_a_reader_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = source_options({"brokers": "127.0.0.1:1", "topic": "t", "spool": str(tmp_path)})
    failing = Receiver(options, options.brokers[0], 0)
    monkeypatch.setattr(Connection, "open", lambda *_, **__: [][0])
    failing.run()
    assert str(failing.trouble) == "reading from broker 127.0.0.1:1 failed: IndexError('list index out of range')"
    failing.stop()


def test_trouble_is_one_line(broker: int, tmp_path: Path) -> None:
    options = source_options({"brokers": "127.0.0.1:1", "topic": "t", "spool": str(tmp_path)})
    nobody = Receiver(options, options.brokers[0], 0)
    nobody.run()
    assert "127.0.0.1:1 cannot be reached" in str(nobody.trouble)
    nobody.stop()
    receiver(broker, tmp_path / "spool", session="mine").stop()
    options = source_options(
        {"brokers": f"127.0.0.1:{broker}", "topic": "t", "spool": str(tmp_path / "spool"), "session": "mine"}
    )
    other = Receiver(options, options.brokers[0], 0)
    with pytest.raises(UsageError, match="was opened for another topic or fence"):
        _ = other.spool
    other.stop()


def test_a_fence_needs_a_broker_that_knows_fences(tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        options = source_options(
            {"brokers": f"127.0.0.1:{port}", "topic": "t", "spool": str(tmp_path), "fence": "geo:1,2;u=3"}
        )
        asking = Receiver(options, options.brokers[0], 0)
        asking.run()
        assert "option fence needs GeoMQ" in str(asking.trouble)
        asking.stop()


def test_another_client_in_the_session_is_named(broker: int, tmp_path: Path) -> None:
    reading = receiver(broker, tmp_path / "spool")
    options = reading._options
    with closing(Connection.open(options.brokers[0], options.login, reading.client_id, clean=True, keep_alive_s=60)):
        assert wait_until(lambda: reading.trouble is not None)
        assert "is the same query running twice?" in str(reading.trouble)
    reading.stop()


def test_what_a_broker_says_before_it_hangs_up_is_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(4096)
                for packet in (Connack(), Disconnect(ReasonCode.SESSION_TAKEN_OVER)):
                    accepted.sendall(encode(packet, V5))

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        options = source_options({"brokers": f"127.0.0.1:{port}", "topic": "s/#", "spool": str(tmp_path)})
        with closing(Connection.open(options.brokers[0], options.login, "one", clean=True, keep_alive_s=60)) as there:
            thread.join()
            reading = Receiver(options, options.brokers[0], 0)
            with pytest.raises(RefusedForGood, match=r"is the same query running twice\?"):
                reading._receive(there)
            reading.stop()


def test_a_refused_subscription_is_one_line(tmp_path: Path) -> None:
    suback = Suback(1, (ReasonCode.NOT_AUTHORIZED,))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                for packet in (Connack(), suback):
                    accepted.recv(4096)
                    accepted.sendall(encode(packet, V5))

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        options = source_options({"brokers": f"127.0.0.1:{port}", "topic": "s/#", "spool": str(tmp_path)})
        refused = Receiver(options, options.brokers[0], 0)
        refused.run()
        thread.join()
        assert str(refused.trouble).endswith("refused the subscription to 's/#': not authorized")
        refused.stop()
