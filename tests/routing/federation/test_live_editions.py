"""A node on its way through the editions of the federation description."""

import random
from typing import Any

import msgspec
import pytest

from geomq.errors import ConfigError
from geomq.routing.core.actions import Action, DeliverToClients, DropEvent, SendToPeer
from geomq.routing.core.events import ClientPublished, ClientSubscribed, PeerDown, PeerSaid, PeerUp
from geomq.routing.core.messages import ForwardEvent, Message, PutSubscription
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.federation.changes import AddBroker, RemoveBroker, SetAreas, SetStrategy, changed
from geomq.routing.federation.description import BrokerEntry, Description, encode_description
from geomq.routing.federation.edition_messages import (
    EditionReached,
    OfferDescription,
    Phase,
    PutDescription,
    WantDescription,
)
from geomq.routing.federation.editions import ChangeAsked, DescriptionLearned, KeepEditions, Kept
from geomq.routing.federation.live_editions import EDITIONS_MAX, PAUSE_MS
from geomq.routing.node import Node

AMS, BER, ROM = (BrokerId(name) for name in ("ams", "ber", "rom"))
ENTRIES = [BrokerEntry(name, (50.0, at), f"{name}:1") for name, at in (("ams", 4.0), ("ber", 13.0), ("rom", 20.0))]
TWO = Description(tuple(ENTRIES[:2]), strategy="flood_subscriptions")
NEXT = changed(TWO, SetStrategy("flood_events"), by="ber")
KEY = NEXT.edition


def node(description: Description = TWO, kept: Kept | None = None, **more: Any) -> Node:
    return Node(me=AMS, description=description, rng=random.Random(1), kept=kept, **more)


def said(actions: list[Action], peer: BrokerId = BER) -> list[Message]:
    return [a.message for a in actions if isinstance(a, SendToPeer) and a.peer == peer]


def reach(ams: Node, phase: Phase, peer: BrokerId = BER, key: Edition = KEY) -> list[Action]:
    return ams.handle(PeerSaid(peer, EditionReached(key, phase)), now=0)


def linked(**more: Any) -> Node:
    ams = node(**more)
    ams.handle(PeerUp(BER), now=0)
    ams.handle(ClientSubscribed(ClientId("s"), "t"), now=0)
    return ams


def test_before_any_change_nothing_is_said_about_editions() -> None:
    ams = node()
    assert [type(m).__name__ for m in said(ams.handle(PeerUp(BER), now=0))] == ["SyncBegin", "SyncEnd"]
    (sent,) = ams.handle(ClientSubscribed(ClientId("s"), "t"), now=0)
    assert isinstance(sent, SendToPeer)
    assert sent.edition is None


def test_a_change_goes_to_every_peer_and_to_disk() -> None:
    ams = linked()
    actions = ams.handle(ChangeAsked(SetStrategy("dht")), now=0)
    assert isinstance(said(actions)[0], PutDescription)
    assert said(actions)[1] == EditionReached(Edition(1, "ams"), Phase.ADOPTED)
    kept = [action.kept for action in actions if isinstance(action, KeepEditions)]
    assert kept[-1].descriptions[-1].strategy == "dht"
    assert ams.editions.waiting_for() == (BER,)


def test_an_impossible_change_changes_nothing() -> None:
    ams = linked()
    for change in (SetStrategy("single"), RemoveBroker("x"), AddBroker(BrokerEntry("rom", None, "rom:1"))):
        with pytest.raises(ConfigError):
            ams.handle(ChangeAsked(change), now=0)
    assert ams.editions.description == TWO
    assert not ams.editions.changing


def test_a_broker_goes_on_only_when_all_others_have_come_so_far() -> None:
    ams = linked()
    ams.handle(PeerSaid(BER, PutDescription(encode_description(NEXT))), now=0)
    assert ams.editions.phase == Phase.ADOPTED
    for phase in (Phase.ADOPTED, Phase.PREPARED, Phase.READY, Phase.SWITCHED):
        told = [m for m in said(reach(ams, phase)) if isinstance(m, EditionReached)]
        assert ams.editions.phase == phase + 1
        assert told[-1] == EditionReached(KEY, phase + 1)
    assert ams.editions.changing
    reach(ams, Phase.DRAINED)
    assert ams.next_deadline() == PAUSE_MS
    actions = ams.on_deadline(now=PAUSE_MS)
    assert not ams.editions.changing
    assert [action.kept.descriptions for action in actions if isinstance(action, KeepEditions)] == [(NEXT,)]


def test_events_go_the_old_way_until_the_switch_and_the_new_way_after_it() -> None:
    ams = linked()
    ams.handle(PeerSaid(BER, PutSubscription(ClientId("x"), "t", None, None)), now=0)
    ams.handle(PeerSaid(BER, PutDescription(encode_description(NEXT))), now=0)
    publish = ClientPublished(ClientId("p"), "t", qos=1)
    before = [a for a in ams.handle(publish, now=0) if isinstance(a, SendToPeer)]
    assert [(type(a.message).__name__, a.edition) for a in before] == [("DeliverEvent", None)]
    for phase in (Phase.ADOPTED, Phase.PREPARED, Phase.READY):
        reach(ams, phase)
    after = [a for a in ams.handle(publish, now=0) if isinstance(a, SendToPeer)]
    assert [(type(a.message).__name__, a.edition) for a in after] == [("ForwardEvent", KEY)]


def test_each_routing_hears_only_its_own_messages() -> None:
    ams = linked()
    ams.handle(PeerSaid(BER, PutDescription(encode_description(NEXT))), now=0)
    event = Event(EventId(BER, 0, 1), "t", ClientId("p"), None, None, qos=1)
    delivered = ams.handle(PeerSaid(BER, ForwardEvent(event), KEY), now=0)
    assert any(isinstance(action, DeliverToClients) for action in delivered)
    unknown = ams.handle(PeerSaid(BER, ForwardEvent(event), Edition(9, "x")), now=0)
    assert unknown == [DropEvent(event.id, "no routing for edition 9:x")]
    stranger = ams.handle(PeerSaid(ROM, ForwardEvent(event), KEY), now=0)
    assert [type(action) for action in stranger] == [DropEvent]


def test_nothing_but_promises_is_said_to_a_peer_that_has_not_adopted_the_edition() -> None:
    ams = linked()
    ams.handle(ChangeAsked(SetStrategy("flood_subscriptions", {})), now=0)
    actions = ams.handle(ChangeAsked(SetStrategy("dht", {})), now=0)
    assert not any(isinstance(a, SendToPeer) and a.edition for a in actions)
    entered = ams.handle(PeerSaid(BER, EditionReached(Edition(1, "ams"), Phase.ADOPTED)), now=0)
    assert any(isinstance(a, SendToPeer) and a.edition == Edition(1, "ams") for a in entered)


def test_a_peer_with_a_later_edition_is_asked_for_it_once() -> None:
    ams = node()
    ams.handle(PeerUp(BER), now=0)
    assert said(ams.handle(PeerSaid(BER, OfferDescription(KEY)), now=0)) == [WantDescription()]
    assert said(ams.handle(PeerSaid(BER, OfferDescription(KEY)), now=0)) == []
    ams.handle(PeerDown(BER), now=0)
    ams.handle(PeerUp(BER), now=0)
    assert said(ams.handle(PeerSaid(BER, OfferDescription(KEY)), now=0)) == [WantDescription()]
    ams.handle(PeerSaid(BER, PutDescription(encode_description(NEXT))), now=0)
    (whole,) = (m for m in said(ams.handle(PeerSaid(BER, WantDescription()), now=0)) if isinstance(m, PutDescription))
    assert whole.description == encode_description(NEXT)


def test_a_description_nobody_could_follow_is_not_followed() -> None:
    ams = linked()
    wrong = msgspec.structs.replace(NEXT, strategy="single")
    for data in (encode_description(wrong), b"\xff"):
        ams.handle(PeerSaid(BER, PutDescription(data)), now=0)
    assert ams.editions.description == TWO


def test_a_change_overtaken_by_one_made_elsewhere_is_made_again_on_top_of_it() -> None:
    ams = linked()
    ams.handle(ChangeAsked(AddBroker(ENTRIES[2])), now=0)
    actions = ams.handle(PeerSaid(BER, PutDescription(encode_description(NEXT))), now=0)
    assert ams.editions.description.strategy == "flood_events"
    assert ams.editions.description.names == ("ams", "ber", "rom")
    assert ams.editions.edition == Edition(2, "ams")
    assert sum(isinstance(m, PutDescription) for m in said(actions)) == 1


GROUPS = Description(tuple(ENTRIES), strategy="broadcast_groups")
BEGUN = changed(GROUPS, SetAreas("grid", 3), by="ber")
"""Groups take changes of areas while they run, but for the first."""


def test_a_description_that_goes_on_with_its_routing_wins_over_one_that_began_another_meanwhile() -> None:
    ams = node(GROUPS)
    ams.handle(PeerUp(BER), now=0)
    ams.handle(PeerSaid(BER, PutDescription(encode_description(BEGUN))), now=0)
    ams.handle(ChangeAsked(SetStrategy("dht")), now=0)
    goes_on = changed(BEGUN, SetAreas("grid", 1), by="ber")
    assert goes_on.edition > ams.editions.edition
    assert goes_on.routing == BEGUN.edition
    ams.handle(PeerSaid(BER, PutDescription(encode_description(goes_on))), now=0)
    assert ams.editions.edition == Edition(3, "ams"), "the own change is made again on top of it"
    assert (ams.editions.description.grid_deg, ams.editions.description.strategy) == (1, "dht")
    assert ams.editions.keys[-2:] == (BEGUN.edition, Edition(3, "ams"))


def test_a_peer_that_sends_less_than_it_offered_is_not_asked_again() -> None:
    ams = linked()
    ams.handle(PeerSaid(BER, OfferDescription(Edition(9, "ber"))), now=0)
    assert said(ams.handle(PeerSaid(BER, PutDescription(encode_description(TWO))), now=0)) == []


def test_a_removed_broker_comes_along_when_the_routing_of_the_others_takes_further_changes() -> None:
    ams = node(GROUPS)
    ams.handle(PeerUp(BER), now=0)
    without = changed(GROUPS, RemoveBroker("ams"), by="ber")
    ams.handle(PeerSaid(BER, PutDescription(encode_description(without))), now=0)
    later = changed(without, SetAreas("grid", 1), by="ber")
    assert later.routing == without.edition
    actions = ams.handle(PeerSaid(BER, PutDescription(encode_description(later))), now=0)
    assert EditionReached(without.edition, Phase.SWITCHED) in said(actions)
    asked = ams.handle(PeerSaid(BER, EditionReached(without.edition, Phase.SWITCHED, asks=True)), now=0)
    assert said(asked) == [EditionReached(without.edition, Phase.SWITCHED)]
    assert ams.editions.waiting_for() == ()


def test_a_removed_broker_is_alone_at_once_and_lets_go_when_the_others_have_switched() -> None:
    ams = linked()
    without = changed(TWO, RemoveBroker("ams"), by="ber")
    ams.handle(PeerSaid(BER, PutDescription(encode_description(without))), now=0)
    assert ams.editions.phase == Phase.SWITCHED
    assert ams.editions.peers == (BER,)
    reach(ams, Phase.SWITCHED)
    reach(ams, Phase.DRAINED)
    ams.on_deadline(now=PAUSE_MS)
    assert not ams.editions.peers
    delivered = ams.handle(ClientPublished(ClientId("p"), "t"), now=PAUSE_MS)
    assert [type(action) for action in delivered] == [DeliverToClients]


def test_a_restarted_broker_goes_on_where_it_was() -> None:
    ams = linked()
    ams.handle(PeerSaid(BER, PutDescription(encode_description(NEXT))), now=0)
    for phase in (Phase.ADOPTED, Phase.PREPARED, Phase.READY):
        reach(ams, phase)
    again = node(kept=msgspec.msgpack.decode(msgspec.msgpack.encode(ams.editions.kept), type=Kept))
    assert (again.editions.phase, again.editions.edition, again.editions.keys) == (
        Phase.SWITCHED,
        KEY,
        ams.editions.keys,
    )
    assert again.strategy is again.routings.live[KEY]


def test_routings_are_bounded() -> None:
    ams = linked()
    for number in range(3 * EDITIONS_MAX):
        ams.handle(ChangeAsked(SetStrategy("dht" if number % 2 else "flood_events")), now=0)
    assert len(ams.routings.live) == EDITIONS_MAX
    assert ams.strategy in ams.routings.strategies


def test_a_description_from_a_seed_is_taken_if_it_is_later() -> None:
    ams = node(Description((ENTRIES[0],)))
    ams.handle(DescriptionLearned(NEXT), now=0)
    assert ams.editions.edition == KEY
    ams.handle(DescriptionLearned(TWO), now=0)
    assert ams.editions.edition == KEY
