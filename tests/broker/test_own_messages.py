"""Messages of a user's own strategy between real brokers: they travel, and what cannot does no harm."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from tests.broker.federated import configs, federation, until
from tests.probe import Probe
from tests.routing.own_strategies import Clumsy, Letter, Note, Noting, Parcel, Undeclared

from geomq.broker.server import Broker
from geomq.geo import Circle, Location
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.types import V5
from geomq.routing.core import message_registry
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.federation.edition_messages import OfEdition

pytestmark = pytest.mark.anyio
COLUMBUS, FRANKFURT = BrokerId("columbus"), BrokerId("frankfurt")
EVENT = Event(EventId(FRANKFURT, 1, 7), "a/b", ClientId("c"), Location(50.0, 8.0), None, b"x", 1)
PARCEL = Parcel(EVENT, Circle(Location(1.0, 2.0), 500.0), Location(3.0, 4.0), -5, {"a": (1, 2)})


class Pair:
    """Two linked brokers; frankfurt sends, columbus receives."""

    def __init__(self, brokers: dict[str, Broker]) -> None:
        self.here, self.there = brokers["columbus"], brokers["frankfurt"]

    @property
    def received(self) -> list[Message]:
        strategy = self.here.core.node.strategy
        assert isinstance(strategy, Noting)
        return strategy.received

    def send(self, *messages: Message) -> None:
        assert self.there.peering is not None
        for message in messages:
            self.there.peering.send(COLUMBUS, message)

    async def all_acknowledged(self) -> None:
        """Nothing waits to be sent again."""
        assert self.there.peering is not None
        link = self.there.peering._peers[COLUMBUS].link
        await until(lambda: link.acknowledged > link.latest)

    async def events_cross(self) -> None:
        """An event of QoS 1 is delivered: the link works."""
        client, _ = await Probe.connect(self.here.port, Connect("s", V5))
        publisher, _ = await Probe.connect(self.there.port, Connect("p", V5))
        await client.subscribe(SubscribeRequest("a/b", 1))
        publisher.publish("a/b", b"well", 1)
        await publisher.expect(Puback)
        assert (await client.expect(Publish)).payload == b"well"
        for probe in (client, publisher):
            await probe.drop()


@asynccontextmanager
async def pair(strategy: type[Noting] = Noting) -> AsyncIterator[Pair]:
    async with federation(configs(f"{strategy.__module__}:{strategy.__name__}", brokers=2)) as brokers:
        linked = Pair(brokers)
        assert brokers["columbus"].peering is not None
        before = brokers["columbus"].peering._peers[FRANKFURT].channel
        yield linked
        assert brokers["columbus"].peering._peers[FRANKFURT].channel is before, "the link did not live"


async def test_they_arrive_and_events_do() -> None:
    async with pair() as linked:
        linked.send(Note("a", 1, "one"), PARCEL, Letter("dear"), Parcel(None, None, None, 0, {}))
        await until(lambda: len(linked.received) == 4)
        assert linked.received == [Note("a", 1, "one"), PARCEL, Letter("dear"), Parcel(None, None, None, 0, {})]
        await linked.events_cross()


@pytest.mark.parametrize("edition", [None, Edition(3, "x")])
async def test_one_that_nobody_declared_is_refused_by_the_sender_by_name(
    edition: Edition | None, caplog: pytest.LogCaptureFixture
) -> None:
    undeclared = Undeclared("hush") if edition is None else OfEdition(edition, Undeclared("hush"))
    async with pair() as linked:
        linked.send(Note("a", 1), undeclared, undeclared, Note("a", 2))
        await until(lambda: len(linked.received) == 2)
        assert linked.received == [Note("a", 1), Note("a", 2)]
        await linked.events_cross()
        assert linked.there.core.counts.peer_messages_unsent == 2
        assert linked.here.core.counts.peer_messages_refused == 0
    (record,) = [each for each in caplog.records if "cannot be sent" in each.getMessage()]
    assert "tests.routing.own_strategies:Noting" in record.getMessage()
    assert "Undeclared is not declared in the `messages` of its strategy" in vars(record)["reason"]


async def test_one_with_a_value_that_cannot_be_written_is_refused_by_the_sender() -> None:
    async with pair() as linked:
        linked.send(Note("a", 1), Letter(object()), Note("a", 2 << 70), Note("a", 2))  # type: ignore[arg-type]
        await until(lambda: len(linked.received) == 2)
        assert linked.received == [Note("a", 1), Note("a", 2)]
        assert linked.there.core.counts.peer_messages_unsent == 2


class OfLaterVersion(Message, frozen=True):
    wire_id: ClassVar[str] = "letter"
    text: str
    stamp: int


@pytest.mark.parametrize("known_as", [None, OfLaterVersion], ids=["unknown", "another version"])
async def test_one_the_receiver_cannot_read_is_acknowledged_counted_and_named_in_the_log(
    known_as: type[Message] | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with pair() as linked:
        others = {wire_id: kind for wire_id, kind in message_registry._BY_ID.items() if kind is not Letter}
        monkeypatch.setattr(message_registry, "_BY_ID", others)
        if known_as is not None:
            message_registry.declare([known_as], by="another version")
        linked.send(Note("a", 1), Letter("lost"), Note("a", 2), Letter("lost, too"), Note("a", 3))
        await until(lambda: len(linked.received) == 3)
        await linked.all_acknowledged()
        await linked.events_cross()
        assert linked.received == [Note("a", 1), Note("a", 2), Note("a", 3)]
        assert linked.here.core.counts.peer_messages_refused == 2
    message_registry.FORMS.pop(OfLaterVersion, None)
    (record,) = [each for each in caplog.records if each.getMessage() == "refused a message from a peer"]
    assert record.levelno == logging.WARNING
    assert (vars(record)["peer"], vars(record)["message_type"]) == (FRANKFURT, "letter")


async def test_one_that_the_strategy_fails_at_does_no_harm() -> None:
    async with pair(Clumsy) as linked:
        linked.send(Note("a", 1), Letter("broken"), Note("a", 2))
        await until(lambda: len(linked.received) == 2)
        await linked.all_acknowledged()
        await linked.events_cross()
        assert linked.here.core.counts.peer_messages_refused == 1


async def test_only_a_durable_one_waits_for_a_peer_that_is_away() -> None:
    configured = configs("tests.routing.own_strategies:Noting", brokers=2)
    async with Broker(configured["frankfurt"]) as there:
        assert there.peering is not None
        there.peering.send(COLUMBUS, Letter(object()))  # type: ignore[arg-type]
        assert there.core.counts.peer_messages_unsent == 1, "one that can never be sent does not wait"
        for message in (Note("a", 1), Letter("kept"), OfEdition(Edition(0, ""), Letter("kept, too"))):
            there.peering.send(COLUMBUS, message)
        async with Broker(configured["columbus"]) as here:
            strategy = here.core.node.strategy
            assert isinstance(strategy, Noting)
            await until(lambda: len(strategy.received) == 2)
            assert strategy.received == [Letter("kept"), Letter("kept, too")]
