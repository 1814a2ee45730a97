"""Events and announcements through a vanilla MQTT 5 broker and back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.cloud.codec import (
    UNKNOWN_PUBLISHER,
    CloudReader,
    event_id_of,
    fetch_identifier,
    live_identifier,
    publish_of_announcement,
    publish_of_event,
)
from geomq.geo import Circle, Location, Polygon, parse_fence
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties, encode_properties
from geomq.mqtt.codec.types import V5, PacketType
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.groups.messages import CloudAnnounce, CloudAnnounced, CloudPublished

WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)
OUR_NAMES = [
    "geo-event",
    "geo-fence",
    "geo-location",
    "geo-publisher",
    "geo-leader",
    "geo-event-fence",
    "own-geo-fence",
]
NAMES = st.sampled_from(OUR_NAMES) | WORDS
VALUES = st.sampled_from(["paris:1:2", "1,2", "geo:1,2;u=5", "POLYGON ((0 0, 1 0, 1 1, 0 0))"]) | WORDS
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(tuple)
LOCATIONS = st.builds(Location, st.floats(-90, 90), st.floats(-180, 179))
FENCES = st.one_of(
    st.builds(Circle, LOCATIONS, st.floats(1, 1e6)),
    st.just(parse_fence("POLYGON ((0 0, 10 0, 10.123456789 10, 0 0))")),
)
IDS = st.builds(EventId, st.sampled_from(["paris", "a.b-c_1"]).map(BrokerId), *2 * (st.integers(0, 2**63 - 1),))


@st.composite
def events(draw: st.DrawFn) -> Event:
    own = Properties(user_properties=draw(PAIRS), content_type=draw(st.none() | WORDS))
    return Event(
        draw(IDS),
        draw(st.sampled_from(["a", "a/b", "é/x"])),
        ClientId(draw(WORDS)),
        draw(st.none() | LOCATIONS),
        draw(st.none() | FENCES),
        draw(st.binary(max_size=20)),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        b"" if own == NO_PROPERTIES else encode_properties(own, PacketType.PUBLISH),
    )


KEY = b"0123456789abcdef"


def reader(key: bytes | None = None) -> CloudReader:
    return CloudReader(
        me=BrokerId("me"),
        cloud=BrokerId("cloud"),
        epoch=7,
        leaders_topic="DG/leaders",
        fence_of=parse_fence,
        is_ours=lambda broker: broker == "ours",
        key=key,
    )


def over_the_wire(publish: Publish) -> Publish:
    sent = msgspec.structs.replace(publish, packet_id=1 if publish.qos else 0)
    (packet,) = Decoder(Side.CLIENT, version=V5).feed(encode(sent, V5))
    assert isinstance(packet, Publish)
    return packet


def said(found: CloudPublished | CloudAnnounced | None) -> Event:
    assert isinstance(found, CloudPublished)
    return found.event


@given(events())
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert said(reader().read(over_the_wire(publish_of_event(event)))) == event


@given(events())
def test_a_cloud_that_knows_places_does_not_take_the_events_for_the_leaders(event: Event) -> None:
    carried = publish_of_event(event).properties
    assert carried.user("geo-location") is None
    assert carried.user("geo-fence") is None


@given(events())
def test_a_signed_event_comes_back_as_it_was_and_an_unsigned_one_as_a_strangers(event: Event) -> None:
    signed = over_the_wire(publish_of_event(event, KEY))
    assert said(reader(KEY).read(signed)) == event
    assert said(reader().read(signed)) == event
    for forged in (
        publish_of_event(event),
        publish_of_event(event, KEY[::-1]),
        msgspec.structs.replace(signed, topic="other"),
        msgspec.structs.replace(signed, payload=event.payload + b"!"),
    ):
        found = reader(KEY).read(forged)
        assert found is None or said(found).id.origin == "me@cloud"


@given(st.sampled_from(["a", "DG/leaders"]), st.binary(max_size=50), PAIRS, st.booleans(), st.lists(st.integers(1, 9)))
def test_whatever_clients_of_the_cloud_send_is_read_or_refused(
    topic: str, payload: bytes, pairs: tuple[tuple[str, str], ...], retain: bool, identifiers: list[int]
) -> None:
    properties = Properties(user_properties=pairs, subscription_identifiers=tuple(identifiers))
    found = reader().read(Publish(topic, payload, 0, retain, properties=properties))
    assert found is None or isinstance(found, CloudPublished) == (topic == "a")


def live(payload: bytes, *numbers: int, retain: bool = False, qos: int = 1) -> Publish:
    identifiers = tuple(live_identifier(number) for number in numbers)
    return Publish("t", payload, qos, retain, properties=Properties(subscription_identifiers=identifiers))


def fetched(payload: bytes, number: int = 1) -> Publish:
    identifiers = (fetch_identifier(number),)
    return Publish("t", payload, 1, True, properties=Properties(subscription_identifiers=identifiers))


def test_a_message_of_a_client_of_the_cloud_has_no_place_and_an_id_of_the_reader() -> None:
    event = said(reader().read(live(b"x", 1)))
    assert event == Event(EventId(BrokerId("me@cloud"), 7, 1), "t", UNKNOWN_PUBLISHER, None, None, b"x", 1)


def test_copies_for_overlapping_subscriptions_are_one_event_and_equal_messages_are_several() -> None:
    reading = reader()
    sent = [live(b"x", 1), live(b"x", 2), live(b"x", 1), live(b"x", 2), live(b"y", 2), live(b"y", 1), live(b"x", 2)]
    heard = [reading.read(publish) is not None for publish in sent]
    assert heard == [True, False, True, False, True, False, True]


def test_equal_messages_without_subscription_identifiers_are_different_events() -> None:
    reading = reader()
    first, second = said(reading.read(live(b"x"))), said(reading.read(live(b"x")))
    assert first.id != second.id


def test_one_copy_that_names_all_subscriptions_is_one_event_each_time() -> None:
    reading = reader()
    assert [reading.read(live(b"x", 1, 2)) is not None for _ in range(3)] == [True] * 3


def test_what_the_cloud_retained_has_one_id_whoever_fetches_it() -> None:
    one, other = reader(), reader()
    assert said(one.read(fetched(b"x"))).id == said(other.read(fetched(b"x", 5))).id
    assert said(one.read(fetched(b"y"))).id != said(one.read(fetched(b"x"))).id


@pytest.mark.parametrize(("origin", "is_news"), [("ours", False), ("theirs", True)])
def test_what_brokers_of_the_federation_retained_is_not_fetched_from_the_cloud(origin: str, is_news: bool) -> None:
    event = Event(EventId(BrokerId(origin), 1, 2), "t", ClientId("c"), None, None, b"x", 1, True)
    live = publish_of_event(event)
    for number, taken in ((fetch_identifier(1), is_news), (live_identifier(1), True)):
        properties = msgspec.structs.replace(live.properties, subscription_identifiers=(number,))
        found = reader().read(msgspec.structs.replace(live, properties=properties))
        assert (found is not None) == taken


def test_what_was_heard_live_is_known_when_it_is_fetched() -> None:
    reading = reader()
    first = said(reading.read(live(b"on", 1, retain=True)))
    second = said(reading.read(live(b"on", 1, retain=True)))
    assert first.id != second.id
    assert said(reading.read(fetched(b"on", 2))).id == second.id


def test_a_message_with_a_fence_that_cannot_be_read_reaches_nobody() -> None:
    reading = reader()
    bad = Properties(user_properties=(("geo-fence", "POLYGON"),))
    assert reading.read(Publish("t", b"x", properties=bad)) is None
    assert reading.refused == 1


def test_a_client_of_the_cloud_may_say_where_it_is() -> None:
    pairs = (("geo-location", "1,2"), ("geo-fence", "POLYGON ((0 0, 1 0, 1 1, 0 0))"), ("mine", "x"))
    event = said(reader().read(Publish("t", b"x", properties=Properties(user_properties=pairs))))
    assert event.location == Location(1, 2)
    assert isinstance(event.fence, Polygon)
    assert event.publisher == UNKNOWN_PUBLISHER


def test_announcements_come_back_and_those_of_other_regions_are_no_events() -> None:
    announce = CloudAnnounce("DG/leaders", BrokerId("paris"), 2.5)
    publish = over_the_wire(publish_of_announcement(announce))
    assert reader().read(publish) == CloudAnnounced("DG/leaders", BrokerId("paris"), 2.5)
    assert reader().read(msgspec.structs.replace(publish, topic="DG/elsewhere")) is None
    assert reader().read(msgspec.structs.replace(publish, retain=True)) is None


def test_announcements_that_make_no_sense_are_ignored() -> None:
    nonsense: list[Any] = [
        b"",
        b"{}",
        b"[" * 1000,
        b'{"leader":"","lcm":1}',
        b'{"leader":"x","lcm":1e999}',
        b"9" * 2000,
    ]
    assert all(reader().read(Publish("DG/leaders", payload)) is None for payload in nonsense)


@given(IDS)
def test_ids_are_read_as_they_are_written(event_id: EventId) -> None:
    assert event_id_of(str(event_id)) == event_id


def test_texts_that_are_no_ids_are_none() -> None:
    for text in ("", "a", "a:1", "a:1:", ":1:1", "a:1:1:1", f"a:1:{2**63}", "a:-1:1", "a:1:1\n", "a b:1:1", "a:٣:1"):
        assert event_id_of(text) is None
