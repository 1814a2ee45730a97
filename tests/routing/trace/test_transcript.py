"""The one readable form of what a node did, and its copies in the documentation."""

import os
import re
from pathlib import Path

import pytest
from tests.routing.stage import circle, moved, published, subscribed

from geomq.geo import Location, Polygon
from geomq.routing.core.actions import Action, DeliverToClients, DropEvent, SendToPeer
from geomq.routing.core.events import ClientMoved, PeerSaid
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, PutSubscription, SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.trace.transcript import describe, describe_action, explain

PAGES = Path(__file__).parents[3] / "docs" / "topics" / "strategies"
GOLDENS = Path(__file__).parents[1] / "goldens"
BLOCK = re.compile(r"<!-- transcript: ([\w-]+) -->\n\n```text\n(.*?)```\n", re.DOTALL)

ME, PEER = BrokerId("b1"), BrokerId("b2")
EVENT = Event(EventId(ME, 0, 7), "t/u", ClientId("p"), Location(52.5, 13.4), circle(52, 13, 25), b"abc", 1)
MATCHES = (Match(ClientId("c"), "t/+"), Match(ClientId("c"), "#"), Match(ClientId("d"), "#"))


def test_a_step_is_a_line_and_an_indented_line_for_each_action() -> None:
    actions = [SendToPeer(PEER, ForwardEvent(EVENT)), DeliverToClients(EVENT, MATCHES), DropEvent(EVENT.id, "why")]
    assert explain(1234.4, ME, published("p", "t/u"), actions) == [
        "    1234 b1: ClientPublished client=p topic=t/u",
        "           -> to b2: ForwardEvent event=b1:0:7(p t/u at 52.5,13.4 to circle(52,13 25 km)) hops=1",
        "           -> deliver b1:0:7 to c, d",
        "           -> drop b1:0:7: why",
    ]


def test_what_is_no_input_is_printed_as_it_is() -> None:
    assert explain(5, ME, "deadline", []) == ["       5 b1: deadline"]


def test_what_a_peer_said_names_the_peer() -> None:
    assert describe(PeerSaid(PEER, SyncBegin())) == "from b2: SyncBegin"


def test_empty_fields_are_left_out() -> None:
    assert describe(subscribed("c", "t")) == "ClientSubscribed client=c topic_filter=t"
    assert describe(ClientMoved(ClientId("c"), None)) == "ClientMoved client=c"


def test_places_and_fences_are_short() -> None:
    assert describe(moved("c", 52.123456789, -0.5)) == "ClientMoved client=c location=52.1235,-0.5"
    put = PutSubscription(ClientId("c"), "t", circle(1, 2, 0.5), Location(1, 2))
    assert describe(put) == "PutSubscription client=c topic_filter=t fence=circle(1,2 0.5 km) location=1,2"


def test_a_polygon_is_written_as_wkt() -> None:
    corner = Location(0, 0)
    put = PutSubscription(ClientId("c"), "t", Polygon(((corner, Location(0, 1), Location(1, 1), corner),)), None)
    assert "POLYGON ((0.0 0.0, 1.0 0.0, 1.0 1.0, 0.0 0.0))" in describe(put)


def test_matches_name_client_and_filter() -> None:
    assert describe(DeliverEvent(EVENT, MATCHES)).endswith("matches=[c:t/+, c:#, d:#]")


def test_an_action_of_ones_own_is_still_printed() -> None:
    class Wave(Action, frozen=True):
        """A user's action."""

    assert "Wave" in describe_action(Wave())


def documented() -> list[tuple[str, str, str]]:
    return [
        (page.name, name, text) for page in sorted(PAGES.glob("*.md")) for name, text in BLOCK.findall(page.read_text())
    ]


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, name, _ in documented()])
def test_a_transcript_in_the_documentation_is_the_golden_one(page: str, name: str) -> None:
    path = PAGES / page
    golden = (GOLDENS / f"{name}.txt").read_text()
    if os.environ.get("GEOMQ_UPDATE_GOLDENS") == "1":
        pattern = re.compile(rf"(<!-- transcript: {name} -->\n\n```text\n).*?(```\n)", re.DOTALL)
        path.write_text(pattern.sub(lambda found: found[1] + golden + found[2], path.read_text()))
    assert (page, name, golden) in documented()


def test_every_golden_transcript_is_shown_somewhere() -> None:
    assert {name for _, name, _ in documented()} == {path.stem for path in GOLDENS.glob("*.txt")}
