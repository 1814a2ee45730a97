"""Spooled packets to columns: everything a PUBLISH can say, and bytes that say nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import ProtocolError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5, V311
from geomq.pipeline.streaming.decode import DDL, SCHEMA, Columns, Origin, packets_of, topic_end
from geomq.pipeline.streaming.format import GeomqFormat


def decoded(packets: bytes, version: int = V5) -> list[dict[str, Any]]:
    columns = Columns(Origin("host:1883", "session", version))
    columns.add(packets, packets_of(packets), 100, 1_000_000)
    rows: list[dict[str, Any]] = columns.batch().to_pylist()
    return rows


def test_the_columns_are_those_the_format_promises() -> None:
    assert GeomqFormat({"brokers": "a", "topic": "t"}).schema() == DDL
    assert [
        part.split()[0] for part in DDL.replace("lat: double, ", "").split(", ") if "string>" not in part
    ] == SCHEMA.names


def test_everything_a_broker_tells_has_a_column() -> None:
    told = Properties(
        content_type="text/plain",
        correlation_data=b"\x01\xff",
        user_properties=(
            ("a", "1"),
            ("geo-event", "home:1:2"),
            ("geo-time", "1700000000123"),
            ("geo-broker", "home"),
            ("geo-publisher", "sensor"),
            ("geo-location", "52.5,13.4"),
            ("geo-fence", "geo:1,2;u=3"),
            ("a", "2"),
        ),
    )
    (row,) = decoded(encode(Publish("t/1", b"hi", 1, True, packet_id=7, properties=told), V5))
    assert row["event_id"] == "home:1:2"
    assert (row["topic"], row["payload"], row["qos"], row["retain"]) == ("t/1", b"hi", 1, True)
    assert (row["publisher"], row["broker"], row["fence"]) == ("sensor", "home", "geo:1,2;u=3")
    assert row["location"] == {"lat": 52.5, "lon": 13.4}
    assert row["event_time"].timestamp() == 1700000000.123
    assert row["received_time"].timestamp() == 1.0
    assert dict(row["properties"]) == {"content_type": "text/plain", "correlation_data": "01ff", "a": "2"}


@pytest.mark.parametrize("version", [V311, V5])
def test_a_plain_event_has_what_the_reader_knows(version: int) -> None:
    first, second = decoded(
        encode(Publish("a", b""), version) + encode(Publish("b", b"x" * 300, 1, packet_id=1), version), version
    )
    assert (first["event_id"], second["event_id"]) == ("session:100", "session:101")
    assert (first["broker"], first["event_time"]) == ("host:1883", first["received_time"])
    assert (second["payload"], second["properties"]) == (b"x" * 300, [])


def test_a_told_time_or_place_that_is_none_is_left_out() -> None:
    told = Properties(user_properties=(("geo-time", "soon"), ("geo-location", "nowhere")))
    (row,) = decoded(encode(Publish("a", properties=told), V5))
    assert row["location"] is None
    assert row["event_time"] == row["received_time"]


@given(st.binary(max_size=40), st.sampled_from([V311, V5]), st.sampled_from([0x30, 0x31, 0x32, 0x3A]))
def test_no_bytes_stop_the_reader(body: bytes, version: int, first: int) -> None:
    body = b"\0\1t" + body + b"\0\0"
    (row,) = decoded(bytes((first, len(body))) + body, version)
    assert row["topic"] == "t"
    assert row["event_id"]


def test_cut_packets_are_noticed() -> None:
    packet = encode(Publish("topic", b"payload"), V311)
    assert packets_of(packet + packet) == [(0, len(packet)), (len(packet), 2 * len(packet))]
    assert topic_end(packet, 0) == (4, 9)
    for cut in range(1, len(packet)):
        with pytest.raises(ProtocolError):
            packets_of(packet[:cut])


def test_text_that_is_no_utf8_does_not_stop_a_query() -> None:
    good = encode(Publish("t", b"1", properties=Properties(user_properties=(("geo-fence", "here"),))), V5)
    bad = [
        good.replace(b"here", b"\xff\xfe\xfd\xfc"),
        good.replace(b"geo-fence", b"geo-event").replace(b"here", b"\xffxyz"),
    ]
    rows = decoded(b"".join([good, *bad, good]))
    assert [row["fence"] for row in rows] == ["here", "\ufffd" * 4, None, "here"]
    assert rows[2]["event_id"] == "\ufffdxyz"


def test_what_a_broker_does_not_vouch_for_is_not_believed() -> None:
    forged = (("geo-event", "session:101"), ("geo-time", "1"), ("geo-broker", "b"), ("geo-publisher", "p"))
    said = (*forged, ("geo-location", "1,2"), ("geo-fence", "geo:1,2;u=3"))
    packets = 2 * encode(Publish("t", b"", properties=Properties(user_properties=said)), V5)
    columns = Columns(Origin("host:1883", "session", V5, tells=False))
    columns.add(packets, packets_of(packets), 100, 1_000_000)
    first, second = columns.batch().to_pylist()
    assert (first["event_id"], second["event_id"]) == ("session:100", "session:101")
    assert (first["broker"], first["publisher"], first["event_time"]) == ("host:1883", None, first["received_time"])
    assert (first["location"], first["fence"]) == ({"lat": 1.0, "lon": 2.0}, "geo:1,2;u=3")
