"""What only concerns one client finds its way without looking at everything the client has."""

import itertools
import time

from tests.broker.fastpath.test_publishing import Client, Stage

from geomq.broker.clients.geocontext import filters_of
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Subscribe, SubscribeRequest
from geomq.mqtt.codec.topics import topic_matches
from geomq.mqtt.codec.types import V5


def test_the_filters_of_a_topic_are_those_that_match_it() -> None:
    levels = ("$geo", "enter", "home", "+", "#")
    filters = ["/".join(each) for count in (1, 2, 3, 4) for each in itertools.product(levels, repeat=count)]
    proper = [each for each in filters if "#" not in each[:-1]]
    for topic in ("$geo/enter/home", "$geo/error"):
        wanted = {each for each in proper if topic_matches(each, topic)}
        assert wanted == {each for each in filters_of(topic) if set(each.split("/")) <= set(levels)}
        assert len(set(filters_of(topic))) == len(filters_of(topic)) <= 11


def test_crossing_many_fences_with_many_subscriptions_takes_no_time() -> None:
    stage = Stage()
    client = Client(stage, "c", V5)
    for number in range(100):
        client.send(client.publish(f"$geo/fence/f{number}", b"geo:52.5,13.4;u=100"))
    for number in range(50):
        names = [f"$geo/enter/{number}-{other}" for other in range(150)]
        client.send(encode(Subscribe(1, tuple(map(SubscribeRequest, (*names, "$geo/enter/+")))), V5))
    stage.loop.tick()
    client.received()
    started = time.process_time()
    client.send(client.publish("$geo/location", b"52.5,13.4"))
    taken_s = time.process_time() - started
    stage.loop.tick()
    assert len(client.received()) == 100
    assert taken_s < 0.2
