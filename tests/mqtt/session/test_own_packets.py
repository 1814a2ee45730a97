"""Packets made for one receiver alone."""

from geomq.mqtt.codec.aliases import OutboundAliases
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.packets import Packet, Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.own_packets import own_packet
from geomq.mqtt.session.subscriptions import Terms

QOS0, QOS1 = Terms(0, False, ()), Terms(1, False, (7,))


def _sent(terms: Terms, packet_id: int = 0, *, again: bool = False, aliases: OutboundAliases | None = None) -> Packet:
    fanout = Fanout(ApplicationMessage("in/t", b"x", 2), 0.0)
    (packet,) = Decoder(Side.CLIENT, version=V5).feed(
        own_packet(fanout, V5, terms, packet_id, aliases, "in/", 100, again=again)
    )
    return packet


def test_the_receiver_does_not_see_the_mount_and_gets_its_own_identifiers() -> None:
    expected = Publish("t", b"x", 1, dup=True, packet_id=9, properties=Properties(subscription_identifiers=(7,)))
    assert _sent(QOS1, 9, again=True) == expected


def test_an_alias_stands_for_the_topic_once_it_was_introduced() -> None:
    aliases = OutboundAliases(5)
    assert _sent(QOS0, aliases=aliases) == Publish("t", b"x", properties=Properties(topic_alias=1))
    assert _sent(QOS0, aliases=aliases) == Publish("", b"x", properties=Properties(topic_alias=1))
