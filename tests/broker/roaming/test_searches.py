"""Who was asked for a session, and where the client was first."""

from geomq.broker.roaming import searches
from geomq.broker.roaming.searches import Search, Unasked
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.moves import SessionWanted

A, B = BrokerId("a"), BrokerId("b")


def wanted(since_ms: int, client: str = "r") -> SessionWanted:
    return SessionWanted(ClientId(client), 1, None, False, True, since_ms)


def test_of_two_brokers_that_ask_each_other_exactly_one_was_first() -> None:
    for here, there in ((1, 2), (2, 1), (1, 1)):
        first = Search(wanted(here), {B: None}).is_before(B, wanted(there), A)
        assert first is not Search(wanted(there), {A: None}).is_before(A, wanted(here), B)
        assert first is (here <= there)


def test_who_has_answered_has_the_client_later_whatever_its_clock_says() -> None:
    assert Search(wanted(1_000), {}).is_before(B, wanted(1), A)


def test_what_is_asked_later_is_not_urgent_and_bounded() -> None:
    unasked = Unasked()
    for number in range(searches.UNASKED_MAX + 1):
        unasked.add(B, wanted(5, str(number)))
    asked = unasked.pop(B)
    assert len(asked) == searches.UNASKED_MAX
    assert not any(each.live for each in asked.values())
    assert unasked.pop(B) == {}
