"""Peer frames as bytes: every message survives the trip, hostile bytes are refused."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.message_examples import EVENT, EXAMPLES

from geomq.errors import ProtocolError
from geomq.geo import Location, Polygon
from geomq.routing.core.messages import (
    CoverageChanged,
    DeliverEvent,
    DropClient,
    ForwardEvent,
    Message,
    PutLocation,
    PutSubscription,
    is_promised,
)
from geomq.routing.core.model import TIME_MAX, BrokerId, ClientId, Edition, Event, EventId, Match
from geomq.routing.core.plan import Batched, DurableBatch, EventBatch
from geomq.routing.federation.edition_messages import OfEdition, unwrapped, wrapped
from geomq.routing.retained.versions import PutRetained
from geomq.routing.sessions.messages import HandOver
from geomq.routing.strategies.groups.messages import Join
from geomq.routing.wire.frames import (
    PROTOCOL_VERSION,
    LooseBatch,
    Ping,
    Pong,
    Refused,
    batch_parts,
    decode_frame,
    encode_frame,
    loose_parts,
)
from geomq.routing.wire.link import Ack, Data, Frame, Hello, Run


def changed(**fields: object) -> Event:
    return msgspec.structs.replace(EVENT, **fields)


def test_a_message_of_an_edition_survives_the_wire_and_is_as_promised_as_what_it_holds() -> None:
    inside = ForwardEvent(EVENT)
    frame = Data(1, 2, OfEdition(Edition(3, "paris"), inside))
    assert decode_frame(encode_frame(frame)) == frame
    assert unwrapped(frame.message) == (inside, Edition(3, "paris"))
    assert is_promised(frame.message)
    assert not is_promised(OfEdition(Edition(3, "paris"), PutLocation(ClientId("c"), None)))


def test_all_messages_of_a_run_survive_the_wire() -> None:
    inside = EXAMPLES.values()
    frame = Run(1, 2, (*inside, *(OfEdition(Edition(3, "paris"), message) for message in inside)))
    assert decode_frame(encode_frame(frame)) == frame


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_run_is_a_frame_or_a_protocol_error(data: st.DataObject) -> None:
    raw = bytearray(encode_frame(Run(1, 2, (ForwardEvent(EVENT), PutLocation(ClientId("c"), None)))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert_frame_or_refusal(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def test_an_edition_inside_an_edition_is_refused() -> None:
    nested = OfEdition(Edition(1, "a"), OfEdition(Edition(1, "a"), ForwardEvent(EVENT)))
    with pytest.raises(ProtocolError):
        encode_frame(Data(1, 2, nested))


@pytest.mark.parametrize("frame", [Hello(1, 2, None, 0, False), Hello(1, 2, 3, 4, True), Ack(5, 6), Ping(1), Pong(2)])
def test_link_frames_survive_the_wire(frame: Frame | Ping | Pong) -> None:
    assert decode_frame(encode_frame(frame)) == frame


names = st.text(max_size=8)
entries = st.builds(
    Batched,
    names.map(ClientId),
    st.none() | st.tuples(st.floats(-90, 90), st.floats(-180, 180)),
    st.integers(0, 2**62),
    st.integers(0, 2**31),
    st.booleans(),
    st.none() | st.lists(st.builds(Match, names.map(ClientId), names), max_size=3).map(tuple),
    st.integers(0, 2**31),
)
batches = st.builds(
    lambda kind, *fields: kind(*fields),
    st.sampled_from((EventBatch, DurableBatch)),
    st.integers(0, 2**31),
    st.integers(0, 2**53),
    st.lists(entries, max_size=20).map(tuple),
    st.lists(st.binary(max_size=300), max_size=5).map(tuple),
)


editions = st.none() | st.builds(Edition, st.integers(0, 9), names)


@settings(max_examples=100)
@given(batch=batches, edition=editions)
def test_a_batch_written_in_pieces_is_the_frame_it_would_be_in_one(batch: EventBatch, edition: Edition | None) -> None:
    frame = Data(3, 4, wrapped(batch, edition))
    in_parts = batch_parts(frame)
    assert in_parts is not None
    size, parts = in_parts
    assert size == len(b"".join(parts))
    assert parts[1:] == list(batch.packets)
    for raw in (b"".join(parts), encode_frame(frame)):
        decoded = decode_frame(raw)
        assert isinstance(decoded, Data)
        got, of = unwrapped(decoded.message)
        assert type(got) is type(batch)
        assert isinstance(got, EventBatch)
        assert (decoded.epoch, decoded.number, of, got.epoch, got.at_ms) == (3, 4, edition, batch.epoch, batch.at_ms)
        assert (got.entries, b"".join(got.packets)) == (batch.entries, b"".join(batch.packets))


@settings(max_examples=100)
@given(batch=batches, edition=editions)
def test_a_batch_without_a_number_survives_the_wire(batch: EventBatch, edition: Edition | None) -> None:
    size, parts = loose_parts(batch, edition)
    assert size == len(b"".join(parts))
    assert parts[1:] == list(batch.packets)
    got = decode_frame(b"".join(parts))
    assert isinstance(got, LooseBatch)
    assert (got.edition, got.epoch, got.at_ms, got.entries) == (edition, batch.epoch, batch.at_ms, batch.entries)
    assert got.packets == b"".join(batch.packets)


@settings(max_examples=200)
@given(batch=batches, data=st.data(), loose=st.booleans())
def test_a_damaged_batch_is_a_frame_or_a_protocol_error(batch: EventBatch, data: st.DataObject, loose: bool) -> None:
    raw = bytearray(b"".join(loose_parts(batch, None)[1]) if loose else encode_frame(Data(1, 2, batch)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert_frame_or_refusal(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def test_only_batches_go_in_pieces() -> None:
    assert batch_parts(Data(1, 2, ForwardEvent(EVENT))) is None
    assert batch_parts(Ack(1, 2)) is None


def assert_frame_or_refusal(data: bytes) -> None:
    try:
        frame = decode_frame(data)
    except ProtocolError:
        return
    assert isinstance(frame, Frame | LooseBatch | Ping | Pong)


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_a_protocol_error(data: bytes) -> None:
    assert_frame_or_refusal(data)


@settings(max_examples=300)
@given(st.data())
def test_damaged_frames_are_frames_or_protocol_errors(data: st.DataObject) -> None:
    raw = bytearray(encode_frame(Data(1, 2, ForwardEvent(EVENT))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert_frame_or_refusal(bytes(raw))


def assert_refusal(message: object, name: str) -> Refused:
    decoded = decode_frame(msgspec.msgpack.encode([1, 4, 5, message]))
    assert isinstance(decoded, Data)
    assert (decoded.epoch, decoded.number) == (4, 5)
    assert isinstance(decoded.message, Refused)
    assert decoded.message.name == name
    return decoded.message


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ([999], "999"),
        ([-1, 2], "-1"),
        ([], "nothing"),
        (None, "nothing"),
        ({"a": 1}, "nothing"),
        (["ForwardEvent"], "ForwardEvent"),
        ([4], "DropClient"),
        ([4, "c", 1], "DropClient"),
        ([4, 7], "DropClient"),
        ([1000, [3, "paris"], [999]], "999"),
        ([1000, [3, "paris"], [1000, [3, "paris"], [4, "c"]]], "1000"),
        ([1000, "paris", [4, "c"]], "DropClient"),
        ([1001, "no.such:Thing", True, [1, 2]], "no.such:Thing"),
        ([1001, "x" * 10_000, True, []], "x" * 80),
        ([1001, 5, True, []], "5"),
        ([1001, "no.such:Thing"], "1001"),
    ],
)
def test_a_message_that_is_unknown_or_of_another_shape_is_refused_by_its_name(message: object, name: str) -> None:
    assert_refusal(message, name)


def test_what_stands_beside_a_refused_message_is_taken() -> None:
    good = msgspec.msgpack.decode(msgspec.msgpack.encode([4, "c"]))
    frame = msgspec.msgpack.encode(
        [8, 4, 5, [good, [999, 1], [1000, [3, "paris"], good], [1000, [3, "paris"], [4]], good]]
    )
    decoded = decode_frame(frame)
    assert isinstance(decoded, Run)
    drop = DropClient(ClientId("c"))
    assert [type(message) is Refused for message in decoded.messages] == [False, True, False, True, False]
    assert decoded.messages[::2] == (drop, OfEdition(Edition(3, "paris"), drop), drop)


@pytest.mark.parametrize(
    ("message", "promised"),
    [
        (ForwardEvent(changed(topic="a/+", qos=0)), False),
        (ForwardEvent(changed(topic="a/+", qos=1)), True),
        (HandOver(ClientId("c"), -1, 0, 1, b""), True),
        (PutSubscription(ClientId("c"), "a/#/b", None, None), False),
    ],
)
def test_a_refusal_says_whether_something_that_was_not_to_be_lost_is(message: Message, promised: bool) -> None:
    decoded = decode_frame(encode_frame(Data(1, 2, message)))
    assert isinstance(decoded, Data)
    assert isinstance(decoded.message, Refused)
    assert decoded.message.promised == promised


def test_bytes_that_are_no_frame_are_a_protocol_error_even_if_they_begin_like_one() -> None:
    whole = encode_frame(Run(1, 2, (DropClient(ClientId("c")), ForwardEvent(EVENT))))
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode_frame(whole[:end])
    for frame in ([1, 0, 0], [1, -1, 0, [4, "c"]], [8, 0, 0, [4, "c"], 1], [77, 0, 0, [4, "c"]], [0, 0], 7):
        with pytest.raises(ProtocolError):
            decode_frame(msgspec.msgpack.encode(frame))


@pytest.mark.parametrize(
    "place", [[91.0, 0.0], [float("nan"), 0.0], [0.0, float("inf")]], ids=["out of range", "nan", "infinite"]
)
def test_a_place_that_is_none_is_refused(place: list[float]) -> None:
    number = PutLocation.wire_id
    assert_refusal([number, "c", place], "PutLocation")


@pytest.mark.parametrize(
    "circle",
    [
        [91.0, 0.0, 5.0],
        [0.0, 0.0, -1.0],
        [0.0, 0.0, float("nan")],
        [float("nan"), 0.0, 5.0],
        [0.0, 0.0, 1e12],
        [0.0, 0.0],
        [0.0, 0.0, 5.0, 5.0],
        ["0", "0", "5"],
    ],
)
def test_a_circle_that_is_none_is_refused(circle: list[object]) -> None:
    number = PutSubscription.wire_id
    assert decode_frame(msgspec.msgpack.encode([1, 0, 0, [number, "c", "t", [0.0, 0.0, 5.0], None]]))
    assert_refusal([number, "c", "t", circle, None], "PutSubscription")


def numbered(epoch: int, sequence: int) -> Event:
    return changed(id=EventId(BrokerId("paris"), epoch, sequence))


def assert_refused(message: Message) -> None:
    for frame in (
        Data(1, 2, message),
        Run(1, 2, (PutLocation(ClientId("c"), None), message)),
        Data(1, 2, OfEdition(Edition(3, "paris"), message)),
    ):
        decoded = decode_frame(encode_frame(frame))
        assert isinstance(decoded, Data | Run)
        *before, refused = decoded.messages if isinstance(decoded, Run) else (decoded.message,)
        assert before == list(frame.messages[:-1] if isinstance(frame, Run) else ())
        assert isinstance(refused, Refused)
        assert refused.name == type(message).__name__
        assert refused.promised or not is_promised(message)
        assert refused.reason


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "#", "a\0b", "x" * 65_536, "a" + "/" * 200])
def test_an_event_on_what_is_no_topic_is_refused(topic: str) -> None:
    for message in (
        ForwardEvent(changed(topic=topic)),
        DeliverEvent(changed(topic=topic), ()),
        PutRetained(changed(topic=topic)),
    ):
        assert_refused(message)
        assert_refused(message)


@pytest.mark.parametrize("qos", [-1, 3, 255])
def test_an_event_of_no_known_qos_is_refused(qos: int) -> None:
    assert_refused(ForwardEvent(changed(qos=qos)))


@pytest.mark.parametrize(
    "event",
    [numbered(-1, 1), numbered(1, -1), numbered(2**63, 1), numbered(1, 2**63), changed(at_ms=-1), changed(at_ms=2**54)],
)
def test_an_event_with_a_number_out_of_range_is_refused(event: Event) -> None:
    assert_refused(ForwardEvent(event))


def test_ids_as_a_cloud_makes_them_survive_the_wire() -> None:
    frame = Data(1, 2, ForwardEvent(numbered(2**63 - 1, 2**63 - 1)))
    assert decode_frame(encode_frame(frame)) == frame


def test_a_retained_event_later_than_any_time_is_refused() -> None:
    frame = Data(1, 2, PutRetained(numbered(0, TIME_MAX)))
    assert decode_frame(encode_frame(frame)) == frame
    for late in (TIME_MAX + 1, 2**64 - 1):
        assert_refused(PutRetained(numbered(0, late)))


@pytest.mark.parametrize(
    "message",
    [
        ForwardEvent(EVENT, -1),
        ForwardEvent(EVENT, 2**63),
        HandOver(ClientId("c"), -1, 0, 1, b""),
        CoverageChanged(1, (64_800,)),
        CoverageChanged(1, (-1,)),
        CoverageChanged(-1, None),
    ],
)
def test_other_numbers_out_of_range_are_refused(message: Message) -> None:
    assert_refused(message)


@pytest.mark.parametrize("frame", [Hello(-1, 2, None, 0, False), Hello(1, 2, -3, 4, True), Ack(5, -6), Ping(-1)])
def test_link_frames_with_numbers_out_of_range_are_refused(frame: Frame | Ping) -> None:
    with pytest.raises(ProtocolError):
        decode_frame(encode_frame(frame))


@pytest.mark.parametrize("entry", [{"sequence": -1}, {"sequence": 2**63}, {"events": -1}, {"size": -1}])
def test_a_batch_with_numbers_out_of_range_is_refused(entry: dict[str, int]) -> None:
    batched = msgspec.structs.replace(Batched(ClientId("c"), None, 5, 1, False, None, 5), **entry)
    batch = EventBatch(1, 2, (batched,), (b"0\x03\x00\x01a",))
    assert_refused(batch)
    with pytest.raises(ProtocolError):
        decode_frame(b"".join(loose_parts(batch, None)[1]))


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "a\0", "x" * 65_536])
def test_what_is_no_filter_is_refused(topic_filter: str) -> None:
    taken = 0
    for message in EXAMPLES.values():
        if "topic_filter" in message.__struct_fields__:
            assert_refused(msgspec.structs.replace(message, topic_filter=topic_filter))
            taken += 1
    assert taken >= 8
    assert_refused(Join(1, ("a", topic_filter)))


def test_a_fence_of_a_broker_that_allows_larger_ones_survives_the_wire() -> None:
    """One that did not would end the link, and end it again whenever it is repeated."""
    arc = [Location(number / 1000.0, (number / 1000.0) ** 2) for number in range(5_000)]
    fence = Polygon(((*arc, arc[0]),))
    frame = Data(1, 2, PutSubscription(ClientId("c"), "t", fence, None))
    assert decode_frame(encode_frame(frame)) == frame


def test_a_message_without_a_wire_form_is_refused() -> None:
    with pytest.raises(ProtocolError):
        encode_frame(Frame())


def test_the_documented_version_is_the_one_that_is_spoken() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "peer-protocol.md"
    assert f"Version {PROTOCOL_VERSION}." in page.read_text()
