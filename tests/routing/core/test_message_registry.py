"""The registry of messages: every kind is declared once, named once on the wire, and has a golden."""

from typing import ClassVar, cast

import msgspec
import pytest
from tests.routing.conftest import GOLDENS, UPDATE
from tests.routing.message_examples import EVENT, EXAMPLES, NEAR, PLACE
from tests.routing.own_strategies import Letter, Note, Noting, Parcel, TearOut

from geomq.errors import ConfigError
from geomq.routing.core.keeps import Put, Rules, Table
from geomq.routing.core.message_registry import declare, declared, known, part_of, wire_id_of
from geomq.routing.core.messages import KINDS, Message
from geomq.routing.core.strategy import Strategy
from geomq.routing.parts import PARTS
from geomq.routing.sharing.groups import PutMember
from geomq.routing.strategies.flooding import FloodEvents
from geomq.routing.strategies.registry import STRATEGIES, messages_of, strategy_class
from geomq.routing.wire.frames import Refused, decode_frame, encode_frame
from geomq.routing.wire.link import Data

OWN: dict[int | str, Message] = {
    "tests.routing.own_strategies:Note": Note("p", -3, "text"),
    "tests.routing.own_strategies:TearOut": TearOut("p"),
    "letter": Letter("text"),
    "tests.routing.own_strategies:Parcel": Parcel(EVENT, NEAR, PLACE, 5, {"a": (1, -2)}),
}
declare(messages_of(Noting), by="tests")


def numbered() -> dict[int, type[Message]]:
    return {wire_id: message for wire_id, message in declared().items() if isinstance(wire_id, int)}


def test_every_message_has_an_example_with_all_fields_filled() -> None:
    assert {number: type(example) for number, example in EXAMPLES.items()} == numbered()
    for example in EXAMPLES.values():
        for field in example.__struct_fields__:
            assert getattr(example, field) not in (None, 0, "", b"", (), False), (example, field)


def test_every_message_has_the_bytes_it_always_had() -> None:
    """A change here is a change of the protocol: a new number, or a new `PROTOCOL_VERSION`."""
    path = GOLDENS / "messages.hex"
    frames = {str(wire_id): encode_frame(Data(1, 2, message)).hex() for wire_id, message in (EXAMPLES | OWN).items()}
    if UPDATE:
        path.write_text("".join(f"{wire_id} {data}\n" for wire_id, data in frames.items()))
    golden = dict(line.split() for line in path.read_text().splitlines())
    assert frames == golden


@pytest.mark.parametrize("message", (EXAMPLES | OWN).values(), ids=lambda message: type(message).__name__)
def test_every_message_survives_the_wire(message: Message) -> None:
    frame = Data(1, 2, message)
    assert decode_frame(encode_frame(frame)) == frame


def test_every_message_belongs_to_strategies_or_to_a_part_and_to_no_two_parts() -> None:
    of_strategies = {message for strategy in STRATEGIES.values() for message in messages_of(strategy)}
    of_parts = [message for messages in PARTS.values() for message in messages]
    assert len(of_parts) == len(set(of_parts))
    assert not of_strategies & set(of_parts)
    assert of_strategies | set(of_parts) == set(numbered().values())
    assert part_of(PutMember) == "members"
    assert all(part_of(message) is None for message in of_strategies)
    assert all(message.kind in KINDS for message in numbered().values())


def test_a_strategy_declares_what_it_adds_and_is_loaded_with_all_it_derives_from() -> None:
    assert strategy_class("tests.routing.own_strategies:Noting") is Noting
    found = messages_of(Noting)
    assert set(found) == {*messages_of(FloodEvents), Note, TearOut, Letter, Parcel}
    assert known("letter") is Letter
    assert wire_id_of(Note) == "tests.routing.own_strategies:Note"
    assert known("tests.routing.own_strategies:Undeclared") is None


class DerivedOfBuiltIn(PutMember, frozen=True):
    """It is another message, so it does not take over the number."""


def test_a_message_derived_from_another_goes_by_a_name_of_its_own() -> None:
    assert wire_id_of(DerivedOfBuiltIn) == f"{__name__}:DerivedOfBuiltIn"


class NoKind(Message, frozen=True):
    kind = "other"  # type: ignore[assignment]


class TakesAWord(Message, frozen=True):
    durable: bool  # type: ignore[misc]


class TakesANumber(Message, frozen=True):
    wire_id: ClassVar[int] = 3


class TakesAName(Message, frozen=True):
    wire_id: ClassVar[str] = "letter"


class Nameless(Message, frozen=True):
    wire_id: ClassVar[str] = "x" * 1000


class HoldsAnything(Message, frozen=True):
    value: "no_such_type"  # type: ignore[name-defined] # noqa: F821


class HoldsAnObject(Message, frozen=True):
    value: ConfigError | Message


class ConfusesTables(Message, frozen=True):
    keeps: ClassVar[Rules] = (Put(Table("sx"), by=("page",)),)
    page: str


class KeepsUnknown(Message, frozen=True):
    keeps: ClassVar[Rules] = (Put(Table("Y"), by=("line",)),)
    page: str


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (NoKind, "its kind is 'other'; known are event"),
        (TakesAWord, "a field must not be named durable"),
        (TakesANumber, "numbers are GeoMQ's own"),
        (TakesAName, "'letter' is taken by tests.routing.own_strategies.Letter"),
        (Nameless, "short texts"),
        (HoldsAnything, "has a field that cannot be encoded"),
        (HoldsAnObject, "has a field that cannot be encoded"),
        (ConfusesTables, "cannot be told from table 's'"),
        (KeepsUnknown, "names line"),
        (Letter("an instance"), "not a subclass of geomq.routing.core.messages.Message"),
        (Strategy, "not a subclass"),
    ],
)
def test_a_message_that_cannot_travel_is_refused_when_its_strategy_is_loaded(
    message: type[Message], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noting, "messages", (message,))
    before = declared()
    with pytest.raises(ConfigError) as refused:
        strategy_class("tests.routing.own_strategies:Noting")
    assert reason in str(refused.value)
    assert "strategy 'tests.routing.own_strategies:Noting': message" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert declared() == before


def test_a_list_that_is_no_tuple_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noting, "messages", Note)
    with pytest.raises(ConfigError, match="Noting: `messages` is not a tuple"):
        strategy_class("tests.routing.own_strategies:Noting")


def test_a_module_that_is_loaded_anew_declares_its_messages_anew() -> None:
    """As in a notebook: the later class is the one that arrives."""
    made = [msgspec.defstruct("Again", [("text", str)], bases=(Message,), module=__name__, frozen=True) for _ in "ab"]
    for kind in made:
        declare([cast(type[Message], kind)], by="tests")
    frame = decode_frame(encode_frame(Data(1, 2, cast(Message, made[1]("x")))))
    assert isinstance(frame, Data)
    assert type(frame.message) is made[1]
    assert not isinstance(frame.message, Refused)
