"""A publish goes out again as it was, marked as a duplicate."""

from dataclasses import replace

from geomq.mqtt.codec.packets import Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.sim.virtual.records import Wish
from geomq.sim.virtual.unanswered import Asked, Outgoing


def test_what_is_sent_again_differs_only_in_the_mark() -> None:
    publish = Publish("t", b"x", 2, True, properties=Properties(message_expiry_interval=9))
    each = Outgoing("e", publish)
    first, again = each.packet(7, dup=False), each.packet(7, dup=True)
    assert (first.topic, first.payload, first.qos, first.retain, first.packet_id) == ("t", b"x", 2, True, 7)
    assert first.properties == publish.properties
    assert (first.dup, again.dup) == (False, True)
    assert not each.released


def test_what_was_asked_for_is_known_by_its_wish() -> None:
    packet = Subscribe(1, (SubscribeRequest("t", 1),))
    assert Asked(Wish("t", 1), packet).wish != replace(Wish("t", 1), wanted=False)
