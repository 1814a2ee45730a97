"""Wire forms derived from annotations: what a user's message may hold, and what is checked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.routing.message_examples import EVENT, NEAR, PLACE, SQUARE
from tests.routing.own_strategies import Note, Noting, Parcel

from geomq.errors import GeomqError
from geomq.geo import Fence, Location
from geomq.routing.core.message_registry import declare
from geomq.routing.core.messages import CoverageConfirmed, Message, is_promised
from geomq.routing.core.model import Edition
from geomq.routing.core.wire_forms import Form, NamedForm
from geomq.routing.federation.edition_messages import OfEdition
from geomq.routing.strategies.registry import messages_of
from geomq.routing.wire.frames import Refused, decode_frame, encode_frame
from geomq.routing.wire.link import Data

declare(messages_of(Noting), by="tests")
parcels = st.builds(
    Parcel,
    st.none() | st.just(EVENT),
    st.none() | st.sampled_from([NEAR, SQUARE]),
    st.none() | st.builds(Location, st.floats(-90, 90), st.floats(-180, 180)),
    st.integers(-(2**63), 2**64 - 1),
    st.dictionaries(st.text(max_size=5), st.lists(st.integers(-9, 9), max_size=3).map(tuple), max_size=3),
)


def round_trip(message: Message) -> Message:
    decoded = decode_frame(encode_frame(Data(1, 2, message)))
    assert isinstance(decoded, Data)
    return decoded.message


@given(parcels, st.none() | st.just(Edition(3, "paris")))
def test_whatever_a_users_message_holds_arrives(parcel: Parcel, edition: Edition | None) -> None:
    message = parcel if edition is None else OfEdition(edition, parcel)
    assert round_trip(message) == message
    assert is_promised(message) == (parcel.event is not None)


@pytest.mark.parametrize(
    "changed",
    [
        {"event": msgspec.structs.replace(EVENT, topic="a/+")},
        {"event": msgspec.structs.replace(EVENT, qos=3)},
        {"place": Location(91.0, 0.0)},
        {"weight": "heavy"},
        {"contents": {"a": "b"}},
    ],
    ids=str,
)
def test_the_values_of_a_users_message_are_checked_when_it_arrives(changed: dict[str, object]) -> None:
    refused = round_trip(msgspec.structs.replace(Parcel(EVENT, NEAR, PLACE, 1, {}), **changed))
    assert isinstance(refused, Refused)
    assert refused.name == "tests.routing.own_strategies:Parcel"
    assert refused.promised


class Checked(Message, frozen=True):
    topic: str
    topic_filter: str


def test_fields_called_topic_or_filter_have_to_hold_one() -> None:
    form = Form(Checked, tag=7)
    assert form.from_wire(form.to_wire(Checked("a/b", "a/#"))) == Checked("a/b", "a/#")
    for wrong in (Checked("a/#", "a/#"), Checked("a/b", "a/#/b")):
        with pytest.raises(GeomqError):
            form.from_wire(form.to_wire(wrong))


class HoldsAFenceDeeper(Message, frozen=True):
    fences: tuple[Fence, ...]


def test_what_no_form_can_be_made_of_fails_at_once() -> None:
    with pytest.raises(TypeError):
        NamedForm(HoldsAFenceDeeper, "deeper")


def test_numbers_of_geomq_are_never_negative_but_those_of_users_may_be() -> None:
    assert round_trip(Note("p", -1)) == Note("p", -1)
    assert isinstance(round_trip(CoverageConfirmed(-1)), Refused)
