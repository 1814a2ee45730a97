"""Every target takes its corpus and any other bytes, and the corpus gets where it is meant to; `python -m tests.fuzz`
looks for bytes that reach further."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.connections.pretended import received
from tests.fuzz.corpus import CONNECT, CORPUS, FENCES, LOCATIONS, ONCE_BROKE, UPGRADE
from tests.fuzz.targets import FEDERATED, TARGETS, peer_frames
from tests.fuzz.world import ADMIN, CLIENTS, PEERS, WEBSOCKETS, World
from tests.routing.message_examples import EVENT

from geomq.geo import parse_fence, parse_location
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Publish
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.messages import DeliverEvent
from geomq.routing.core.model import ClientId, Match
from geomq.routing.wire.frames import encode_frame
from geomq.routing.wire.link import Data

OTHER_DELIVERIES = ("broadcast_groups", "mesh")
"""These deliver by other messages than the rest."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_takes_its_corpus(target: str) -> None:
    assert CORPUS[target]
    for example in CORPUS[target]:
        assert TARGETS[target](example) is None


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


def test_a_stranger_reaches_the_broker_at_every_port() -> None:
    world = World()
    (answer,) = Decoder(Side.CLIENT, version=V5).feed(world.send(CLIENTS, [encode(CONNECT, V5)]))
    assert isinstance(answer, Connack)
    assert answer.reason == 0
    assert world.send(WEBSOCKETS, [UPGRADE]).startswith(b"HTTP/1.1 101 ")
    for example in [each for each in CORPUS["admin"] if each not in ONCE_BROKE["admin"]]:
        status = world.send(ADMIN, [example]).split(b" ", 2)[1]
        assert status in (b"200", b"204", b"400"), example
    assert World("mesh").send(PEERS, [])[5:].startswith(b"\xa5geomq")


@pytest.mark.parametrize("strategy", [name for name in FEDERATED if name not in OTHER_DELIVERIES])
def test_what_the_peer_of_a_target_sends_reaches_clients(strategy: str) -> None:
    world = World(strategy)
    message = DeliverEvent(EVENT, (Match(ClientId("watcher"), "#"),))
    body = encode_frame(Data(1, 1, message))[4:]
    framed = bytes((1, len(body))) + body
    assert world.speak_as_peer(lambda epoch: list(peer_frames(framed, epoch)))
    assert bytes(EVENT.payload) in world.watched


def test_the_texts_of_the_corpus_are_valid() -> None:
    assert all(parse_fence(text) for text in FENCES[:-1])
    assert all(parse_location(text) for text in LOCATIONS)


def test_a_target_notices_what_fails_inside_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KeyError("planted")

    world = World()
    monkeypatch.setattr("geomq.broker.operations.admin.metrics_text", fail)
    with pytest.raises(AssertionError, match="planted"):
        world.send(ADMIN, [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"])
