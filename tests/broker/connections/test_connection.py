"""Whatever bytes a client sends, the broker answers or closes; it never fails inside."""

import contextlib
import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.connections.pretended import (
    Failures,
    PretendedTransport,
    handlers_of_a_broker,
    received,
)

from geomq.broker.config.settings import Limits, Listener
from geomq.broker.connections.connection import LARGE_BYTES
from geomq.broker.state.turns import TURN_NS
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.faults import MqttError
from geomq.mqtt.codec.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5, V311

TOPICS = ["a", "a/b", "$geo/location", "$geo/fence/f", "$geo/to/f/a", "$geo/x", "$SYS/x", "owntracks/a/b", ""]
PAYLOADS = [b"", b"x", b"1,2", b"geo:1,2;u=30", b"\xff", b'{"_type":"location","lat":1,"lon":2}', b"91,0"]
FILTERS = ["a", "#", "a/+", "$geo/#", "$geo/from/f/a", "$share/g/a", "$share/g/$geo/from/f/#", "$geo/from/x/a"]


properties = st.sampled_from(
    [
        Properties(),
        Properties(user_properties=(("geo-fence", "geo:1,2;u=30"),)),
        Properties(user_properties=(("geo-fence", "x"), ("geo-location", "y"))),
        Properties(user_properties=(("geo-location", "3,4"),)),
        Properties(topic_alias=2),
        Properties(message_expiry_interval=0),
        Properties(subscription_identifiers=(7,)),
    ]
)
ids = st.integers(1, 5)
requests = st.builds(
    SubscribeRequest, st.sampled_from(FILTERS), st.integers(0, 2), st.just(False), st.booleans(), st.integers(0, 2)
)
packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        lambda topic, payload, qos, retain, packet_id, more: Publish(
            topic, payload, qos, retain, False, packet_id if qos else 0, more
        ),
        st.sampled_from(TOPICS),
        st.sampled_from(PAYLOADS),
        st.integers(0, 2),
        st.booleans(),
        ids,
        properties,
    ),
    st.builds(Subscribe, ids, st.lists(requests, min_size=1, max_size=3).map(tuple), properties),
    st.builds(Unsubscribe, ids, st.lists(st.sampled_from(FILTERS), min_size=1, max_size=2).map(tuple)),
    *(st.builds(make, ids) for make in (Puback, Pubrec, Pubrel, Pubcomp)),
    st.just(Pingreq()),
    st.sampled_from([Disconnect(), Disconnect(properties=Properties(session_expiry_interval=5))]),
    st.just(Auth(properties=Properties(authentication_method="x"))),
)


@given(st.sampled_from([V311, V5]), st.lists(packets, max_size=12), st.data())
@settings(max_examples=400)
def test_the_broker_survives_every_conversation(version: int, said: list[Packet], data: st.DataObject) -> None:
    handlers, loop = handlers_of_a_broker()
    log, failures = logging.getLogger("geomq.broker"), Failures()
    log.addFilter(failures)
    try:
        connection = handlers.make_connection(Listener(host="127.0.0.1"))
        transport = PretendedTransport()
        connection.connection_made(transport)
        more = Properties(session_expiry_interval=10) if version == V5 else Properties()
        wire = bytearray(encode(Connect("c", version, False, 10, Will("a", b"w", 1), properties=more), version))
        for packet in said:
            if isinstance(packet, Auth) and version == V311:
                continue
            wire += encode(packet, version)
        for _ in range(data.draw(st.integers(0, 3))):
            wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(wire)))
        for piece in (bytes(wire[:cut]), bytes(wire[cut:])):
            if piece and not connection.closed:
                connection.data_received(piece)
            loop.run()
        connection.connection_lost(None)
        loop.run()
        list(Decoder(Side.CLIENT, version=connection.version).feed(bytes(transport.written)))
    finally:
        log.removeFilter(failures)
    assert not failures.seen, failures.seen[0].exc_info
    assert not handlers.connections


events = st.builds(
    lambda topic, payload, qos, packet_id, alias: Publish(
        topic, payload, qos, False, False, packet_id if qos else 0, Properties(message_expiry_interval=alias)
    ),
    st.sampled_from(["a", "a/b", "b"]),
    st.sampled_from([b"", b"x", b"y" * 200]),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(1, 60_000),
    st.sampled_from([None, None, None, 9]),
)


def is_for_everybody(event: Publish) -> bool:
    more = event.properties
    return (
        not event.topic.startswith("$")
        and event.qos < 2
        and more.topic_alias is None
        and more.message_expiry_interval != 0
    )


@given(st.sampled_from([V311, V5]), st.lists(events, min_size=1, max_size=30), st.data())
@settings(max_examples=300)
def test_what_arrives_is_what_the_decoder_reads_however_it_is_cut(
    version: int, said: list[Publish], data: st.DataObject
) -> None:
    """Each event takes the normal path or one of the fast ones; a byte may be damaged, and the stream may be torn."""
    wire = bytearray(b"".join(encode(each, version) for each in said) * 2)
    for _ in range(data.draw(st.integers(0, 1))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=3)))
    read, decoder = [], Decoder(Side.SERVER, version=version)
    with contextlib.suppress(MqttError):
        for packet in decoder.feed(bytes(wire)):
            if not isinstance(packet, Publish) or not is_for_everybody(packet):
                return  # damaged to something else
            read.append((packet.topic, packet.payload))
    out = received(version, [bytes(wire[i:j]) for i, j in itertools.pairwise([0, *cuts, len(wire)])])
    arrived = [each for each in Decoder(Side.CLIENT, version=version).feed(out) if isinstance(each, Publish)]
    assert [(each.topic, each.payload) for each in arrived] == read


@pytest.mark.parametrize(
    "wire", [b"\xff" * 100, b"\x10" + b"\xff" * 4, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
def test_other_protocols_are_closed(wire: bytes) -> None:
    handlers, loop = handlers_of_a_broker()
    connection = handlers.make_connection(Listener(host="127.0.0.1"))
    connection.connection_made(PretendedTransport())
    connection.data_received(wire)
    loop.run()
    assert connection.closed


@pytest.mark.parametrize(("wire", "closed"), [(b"\x40\2\0\1" * 3 + b"\xc0\0", False), (b"\x40\2\0\1\x40\2\0\0", True)])
def test_acknowledgements_in_a_row_are_packets_like_others(wire: bytes, closed: bool) -> None:
    handlers, loop = handlers_of_a_broker()
    connection, transport = handlers.make_connection(Listener(host="127.0.0.1")), PretendedTransport()
    connection.connection_made(transport)
    connection.data_received(encode(Connect("c", V5), V5))
    loop.run()
    before = connection._counts.packets_received
    connection.data_received(wire[:6])
    connection.data_received(wire[6:])
    loop.run()
    assert connection.closed == closed
    assert transport.written.endswith(b"\xd0\0") != closed
    assert connection._counts.packets_received == before + len(wire) // 4 + (not closed)


@pytest.mark.parametrize("version", [V311, V5])
def test_an_event_with_packet_identifier_0_is_refused_when_its_topic_is_known_too(version: int) -> None:
    wire = encode(Publish("a", b"x", 1, packet_id=7), version)
    out = received(version, [wire, wire, wire.replace(b"\0\7", b"\0\0"), wire])
    assert len(list(Decoder(Side.CLIENT, version=version).feed(out))) == 2


@given(st.sampled_from([V311, V5]), st.lists(packets, min_size=2, max_size=30), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=150)
def test_packets_are_answered_alike_however_few_share_a_turn(
    version: int, said: list[Packet], steps: int, cut: int
) -> None:
    more = Properties(session_expiry_interval=10) if version == V5 else Properties()
    wire = encode(Connect("c", version, False, 10, Will("a", b"w", 1), properties=more), version)
    wire += b"".join(encode(packet, version) for packet in said if version == V5 or not isinstance(packet, Auth))
    answers = []
    for step_ns in (0, TURN_NS // steps + 1):
        handlers, loop = handlers_of_a_broker(step_ns)
        connection, transport = handlers.make_connection(Listener(host="127.0.0.1")), PretendedTransport()
        connection.connection_made(transport)
        for piece in (wire[:cut], wire[cut:]):
            if piece and not connection.closed:
                connection.data_received(piece)
        loop.run()
        connection.connection_lost(None)
        loop.run()
        found = list(Decoder(Side.CLIENT, version=connection.version).feed(bytes(transport.written)))
        answers.append(
            {kind: [each for each in found if type(each) is kind] for kind in {type(each) for each in found}}
        )
    assert answers[0] == answers[1]


def test_a_connection_takes_few_steps_a_turn_when_steps_are_slow() -> None:
    handlers, loop = handlers_of_a_broker(TURN_NS)
    connection, transport = handlers.make_connection(Listener(host="127.0.0.1")), PretendedTransport()
    connection.connection_made(transport)
    connection.data_received(encode(Connect("c", V5), V5) + encode(Pingreq(), V5) * 9)
    turns = 0
    while loop.ready and turns < 100:
        ready, loop.ready = loop.ready, []
        for callback, args in ready:
            callback(*args)
        turns += 1
    assert transport.written.endswith(b"\xd0\0" * 9)
    assert turns == 4, "ten packets, of which the first step of each turn sets its clock going"


def test_who_had_to_wait_for_a_turn_waits_as_long_as_others_do_and_who_did_not_is_served_at_once() -> None:
    handlers, loop = handlers_of_a_broker(TURN_NS)
    connections, transports = [], []
    for number in range(2):
        connection, transport = handlers.make_connection(Listener(host="127.0.0.1")), PretendedTransport()
        connection.connection_made(transport)
        connection.data_received(encode(Connect(f"c{number}", V5), V5))
        connections.append(connection)
        transports.append(transport)
    loop.run()
    greedy, modest = connections
    greedy.data_received(encode(Pingreq(), V5) * 3)
    loop.run()
    handlers._core.turns.wait(lambda: None)
    before = [len(transport.written) for transport in transports]
    for connection in connections:
        connection.data_received(encode(Pingreq(), V5))
    assert greedy._rest
    assert not modest._rest
    assert len(handlers._core.turns) == 2
    loop.run()
    assert [len(transport.written) - length for transport, length in zip(transports, before, strict=True)] == [2, 2]
    greedy.data_received(encode(Pingreq(), V5))
    assert not greedy._rest, "nobody waits any more"


def test_a_connection_that_is_lost_before_its_client_is_let_in_is_closed_at_once() -> None:
    handlers, loop = handlers_of_a_broker(limits=Limits())
    connection = handlers.make_connection(Listener(host="127.0.0.1"))
    connection.connection_made(PretendedTransport())
    connection.connection_lost(None)
    assert connection.closed, "or somebody who waits for something else lets it in"
    assert not handlers.connections
    loop.run()
    assert connection.closed


def test_a_socket_that_is_read_again_in_the_same_round_of_the_loop_waits_for_another_turn() -> None:
    """uvloop reads one up to 32 times before it looks at others; the pretended clock stands still, as its does."""
    handlers, loop = handlers_of_a_broker(limits=Limits())
    connection = handlers.make_connection(Listener(host="127.0.0.1"))
    connection.connection_made(PretendedTransport())
    connection.data_received(encode(Connect("flood", V5), V5))
    loop.run()
    flood = b"".join(encode(Publish("f", b"%d" % number), V5) for number in range(LARGE_BYTES // 4))
    connection.data_received(flood)
    taken = handlers._core.counts.events_received
    connection.data_received(flood)
    assert handlers._core.counts.events_received == taken == LARGE_BYTES // 4
    loop.run()
    assert handlers._core.counts.events_received == 2 * taken
