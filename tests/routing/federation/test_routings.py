"""The routings of one broker, apart from the node that drives them."""

import random

from tests.routing.worlds import federation_of

from geomq.routing.core.actions import Action, DropEvent, SendToPeer
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import CONFIGURED, BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.core.strategy import ClientState
from geomq.routing.federation.description import describe
from geomq.routing.federation.editions import start_of
from geomq.routing.federation.routings import Routings

AMS, BER = BrokerId("ams"), BrokerId("ber")
NEXT = Edition(1, "ams")
EVENT = Event(EventId(AMS, 0, 1), "t", ClientId("p"), None, None, qos=1)


def routings_of(asked: list[Action]) -> Routings:
    start = start_of(AMS, describe(federation_of(), "flood_events", {}), federation_of())
    return Routings(AMS, {ClientId("c"): ClientState()}, start, rng=random.Random(1), act=asked.append)


def test_messages_of_the_configured_routing_carry_no_edition_and_those_of_others_theirs() -> None:
    routings = routings_of([])
    routings.peer_up(BER, 0)
    routings.take_actions()
    routings.begin(NEXT, federation_of(), "flood_events", {})
    for edition, strategy in routings.live.items():
        strategy.published(EVENT, now=0)
        sent = [action for action in routings.take_actions() if isinstance(action, SendToPeer)]
        assert {action.edition for action in sent} == {None if edition == CONFIGURED else NEXT}


def test_a_peer_is_linked_for_a_routing_once_it_has_entered_its_edition() -> None:
    routings = routings_of([])
    routings.peer_up(BER, 0)
    assert list(routings.within[CONFIGURED]) == [BER]
    routings.begin(NEXT, federation_of(), "flood_events", {})
    assert NEXT not in routings.within
    routings.enter(NEXT, BER, 0)
    assert list(routings.within[NEXT]) == [BER]
    routings.peer_down(BER, 0)
    assert not any(routings.within.values())


def test_an_event_of_an_edition_that_is_over_is_dropped_with_a_reason() -> None:
    asked: list[Action] = []
    routings = routings_of(asked)
    routings.begin(NEXT, federation_of(), "flood_events", {})
    routings.publishing = routings.live[NEXT]
    routings.end(CONFIGURED)
    routings.said(PeerSaid(BER, ForwardEvent(EVENT)), 0)
    assert asked == [DropEvent(EVENT.id, "no routing for edition as configured")]
    assert routings.strategies == (routings.publishing,)


def test_plans_hold_only_while_one_routing_has_all_its_peers() -> None:
    routings = routings_of([])
    assert routings.is_settled
    routings.begin(NEXT, federation_of(), "flood_events", {})
    assert not routings.is_settled
    routings.publishing = routings.live[NEXT]
    routings.end(CONFIGURED)
    assert not routings.is_settled
    for peer in federation_of().ids:
        if peer != AMS:
            routings.enter(NEXT, peer, 0)
    assert routings.is_settled
