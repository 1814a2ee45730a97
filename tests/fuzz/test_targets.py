"""The targets of the fuzzing take any bytes; `python -m tests.fuzz` looks for those that reach further."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.connections.pretended import received
from tests.fuzz.targets import TARGETS

from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V5, V311


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_takes_any_bytes(target: str) -> None:
    @given(st.binary(max_size=60))
    @settings(max_examples=30)
    def feed(data: bytes) -> None:
        assert TARGETS[target](data) is None

    feed()


@pytest.mark.parametrize("version", [V311, V5])
def test_a_connection_takes_what_it_is_sent_along_the_fast_paths_too(version: int) -> None:
    events = [Publish("a", bytes([qos]), qos, packet_id=qos) for qos in (0, 0, 1, 1, 0, 0)]
    wire = b"".join(encode(each, version) for each in events)
    arrived = list(Decoder(Side.CLIENT, version=version).feed(received(version, [wire, wire])))
    assert [each.payload for each in arrived if isinstance(each, Publish)] == [each.payload for each in events] * 2
