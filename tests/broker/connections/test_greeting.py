"""Whether a CONNECT that was not read came from a client of MQTT 5."""

import pytest

from geomq.broker.connections.greeting import speaks_v5
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.types import V5, V311


@pytest.mark.parametrize("name_length", [1, 200, 20_000])
def test_the_version_is_found_behind_a_length_of_any_size(name_length: int) -> None:
    for version in (V5, V311):
        data = encode(Connect("c" * name_length, version), version)
        assert speaks_v5(data) == (version == V5)
        assert not speaks_v5(data[:8])


def test_other_bytes_are_no_connect() -> None:
    for data in (b"", b"\x10", b"\x10\xff\xff\xff\xff\xff", b"\x30\x07\0\4MQTT\5", b"\x10\x07\0\4MQTS\5"):
        assert not speaks_v5(data)
