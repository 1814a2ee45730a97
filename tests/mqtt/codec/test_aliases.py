"""Topic aliases in both directions."""

import pytest

from geomq.mqtt.codec.aliases import InboundAliases, OutboundAliases
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode


def _aliased(topic: str, alias: int) -> Publish:
    return Publish(topic, properties=Properties(topic_alias=alias))


def test_an_alias_stands_for_the_topic_it_last_came_with() -> None:
    aliases = InboundAliases(2)
    assert aliases.resolve(Publish("x")) == "x"
    assert aliases.resolve(_aliased("a", 1)) == "a"
    assert aliases.resolve(_aliased("", 1)) == "a"
    assert aliases.resolve(_aliased("b", 1)) == "b"
    assert aliases.resolve(_aliased("", 1)) == "b"


def test_an_alias_above_the_maximum_or_unknown_is_refused() -> None:
    aliases = InboundAliases(2)
    with pytest.raises(ProtocolViolation) as caught:
        aliases.resolve(_aliased("a", 3))
    assert caught.value.reason == ReasonCode.TOPIC_ALIAS_INVALID
    with pytest.raises(ProtocolViolation) as caught:
        aliases.resolve(_aliased("", 2))
    assert caught.value.reason == ReasonCode.PROTOCOL_ERROR


def test_the_first_topics_get_aliases_until_none_is_left() -> None:
    aliases = OutboundAliases(2)
    assert aliases.alias("unsent", waits=False) == (1, False)
    for topic, number in (("a", 1), ("b", 2)):
        assert aliases.alias(topic, waits=False) == (number, False)
        aliases.introduced(topic, waits=False)
        assert aliases.alias(topic, waits=False) == aliases.alias(topic, waits=True) == (number, True)
    assert aliases.alias("c", waits=False) == (None, False)


def test_what_a_waiting_packet_introduces_is_known_to_waiting_packets_alone() -> None:
    aliases = OutboundAliases(2)
    aliases.introduced("a", waits=True)
    assert aliases.alias("a", waits=True) == (1, True)
    assert aliases.alias("a", waits=False) == (1, False)
    aliases.introduced("a", waits=False)
    assert aliases.alias("a", waits=False) == (1, True)
