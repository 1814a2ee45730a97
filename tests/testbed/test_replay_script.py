"""Packets made beforehand: what they say, and that a payload tells who sent it and when."""

import msgspec
import numpy as np
import pytest

from geomq.geo import Circle, Location, parse_fence, parse_location
from geomq.mqtt.codec.decoder import Decoder
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe
from geomq.testbed.replay_script import STAMP, Step, place_text, read_stamp, script_of, stamped
from geomq.workload.generation.presets import Request, build
from geomq.workload.model import Kind, Workload, generate


@pytest.fixture(scope="module")
def hiking() -> Workload:
    world, spec = build(Request("hiking", clients=30, seconds=60))
    return generate(world, spec, 1)


def packets(steps: list[Step], version: int) -> list[object]:
    """As the broker reads them."""
    decoder = Decoder()
    list(decoder.feed(encode(Connect("x", version), version)))
    sent = [msgspec.structs.replace(stamped(step, 1234.5), packet_id=1) for step in steps]
    return [packet for each in sent for packet in decoder.feed(encode(each, version))]


def everybody(workload: Workload, value: bool) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.full(len(workload.clients), value)


def test_every_action_becomes_one_packet_that_says_the_same(hiking: Workload) -> None:
    steps = script_of(hiking, everybody(hiking, True), everybody(hiking, False), 0)
    actions = hiking.actions
    assert [step.row for step in steps] == list(range(len(actions)))
    for step, packet in zip(steps, packets(steps, 5), strict=True):
        place = Location(actions.lat_e7[step.row] / 1e7, actions.lon_e7[step.row] / 1e7)
        if step.kind == Kind.LOCATION:
            assert isinstance(packet, Publish)
            assert packet.topic == "$geo/location"
            assert parse_location(packet.payload.decode()) == place
        else:
            assert isinstance(packet, Publish | Subscribe)
            fence = parse_fence(packet.properties.user("geo-fence") or "")
            assert fence == Circle(place, actions.radius_cm[step.row] / 100)
            name = packet.topic if isinstance(packet, Publish) else packet.requests[0].topic_filter
            assert name == hiking.topic_names[actions.topic[step.row]]


def test_a_payload_has_the_size_asked_for_and_names_its_sender(hiking: Workload) -> None:
    steps = script_of(hiking, everybody(hiking, True), everybody(hiking, False), 1)
    seen = set()
    for step, packet in zip(steps, packets(steps, 5), strict=True):
        if step.kind == Kind.EVENT:
            assert isinstance(packet, Publish)
            assert packet.qos == 1
            assert len(packet.payload) == max(STAMP.size, hiking.actions.payload_bytes[step.row])
            assert read_stamp(packet.payload) == (step.client, step.number, 1234.5)
            seen.add((step.client, step.number))
    assert len(seen) == int((hiking.actions.kind == Kind.EVENT).sum())


def test_plain_clients_speak_ordinary_mqtt(hiking: Workload) -> None:
    steps = script_of(hiking, everybody(hiking, True), everybody(hiking, True), 0)
    assert Kind.LOCATION not in {step.kind for step in steps}
    for packet in packets(steps, 4):
        assert isinstance(packet, Publish | Subscribe)
        assert not packet.properties.user_properties


def test_a_script_holds_only_the_clients_asked_for(hiking: Workload) -> None:
    mine = np.arange(len(hiking.clients)) % 3 == 1
    steps = script_of(hiking, mine, everybody(hiking, False), 0)
    assert {step.client % 3 for step in steps} == {1}


def test_places_read_back_exactly() -> None:
    for place in ((-900000000, 1800000000), (123456789, -1), (1, 987654321)):
        assert parse_location(place_text(place)) == Location(place[0] / 1e7, place[1] / 1e7)


def test_a_foreign_payload_has_no_stamp() -> None:
    assert read_stamp(b"hello") is None
