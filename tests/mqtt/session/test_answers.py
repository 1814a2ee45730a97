"""What a session answers without having to know anything."""

from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Disconnect, Packet, Puback, Pubrel
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.mqtt.session.answers import pubrel, unexplained

EXPLAINED = Properties(reason_string="why", user_properties=(("a", "b"),))


def test_a_pubrel_is_what_the_codec_makes_of_one() -> None:
    assert pubrel(0x1234) == encode(Pubrel(0x1234), V5)


def test_a_client_is_spared_explanations_but_for_why_it_is_sent_away() -> None:
    packet: Packet = Puback(1, ReasonCode.NOT_AUTHORIZED, EXPLAINED)
    assert unexplained(packet) == Puback(1, ReasonCode.NOT_AUTHORIZED, NO_PROPERTIES)
    farewell = Disconnect(ReasonCode.NOT_AUTHORIZED, EXPLAINED)
    assert unexplained(farewell) is farewell
