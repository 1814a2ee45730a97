"""The simulation's own reading of topics and circles agrees with that of the product."""

import random

from geomq.geo import parse_fence, parse_location
from geomq.mqtt.codec.topics import topic_matches
from geomq.sim.virtual.records import Circle, Client, Connection, Place, Wish, matches


def test_topics_match_as_they_do_in_the_product() -> None:
    filters = ["a", "a/b", "a/+", "+/b", "#", "a/#", "+", "a/+/c", "+/+", "$x/#", "/", "a/b/c/#"]
    topics = ["a", "a/b", "b/b", "a/b/c", "$x/a", "$x", "/", "a/", "b"]
    for topic_filter in filters:
        for topic in topics:
            assert matches(topic_filter, topic) == topic_matches(topic_filter, topic), (topic_filter, topic)


def test_circles_contain_what_they_do_in_the_product() -> None:
    rng = random.Random(1)
    decided = 0
    for _ in range(2_000):
        centre = Place(round(rng.uniform(-80, 80), 3), round(rng.uniform(-180, 180), 3))
        circle = Circle(centre, rng.choice([10_000.0, 500_000.0, 9_000_000.0]))
        near = rng.uniform(0, 3) * circle.radius_m / 111_000
        place = Place(round(max(-89.0, min(89.0, centre.lat + near)), 3), centre.lon)
        said = circle.contains(place)
        if said is not None:
            decided += 1
            assert parse_fence(circle.text).contains(parse_location(place.text)) == said, (circle, place)
    assert decided > 1_500


def test_close_to_a_border_either_answer_is_right() -> None:
    circle = Circle(Place(0.0, 0.0), 111_195.0)
    assert circle.contains(Place(1.0, 0.0)) is None
    assert circle.contains(Place(0.9, 0.0)) is True
    assert circle.contains(Place(1.1, 0.0)) is False


def test_a_shared_wish_knows_its_filter() -> None:
    assert (Wish("$share/crew/news/#", 1).plain, Wish("$share/crew/news/#", 1).share) == (
        "news/#",
        "$share/crew/news/#",
    )
    assert (Wish("news/#", 1).plain, Wish("news/#", 1).share) == ("news/#", None)


def test_a_client_is_connected_through_a_time_only_by_one_connection() -> None:
    client = Client("c", kept=True, expiry_s=60)
    client.connections = [Connection("b", 1, 10.0, 20.0), Connection("b", 2, 20.0)]
    assert client.connected_through(11.0, 19.0)
    assert client.connected_through(21.0, 99.0)
    assert not client.connected_through(19.0, 21.0)
    assert [each.number for each in client.open] == [2]
