"""Clients introduce themselves as what they are."""

from geomq.mqtt.codec.properties import NO_PROPERTIES
from geomq.mqtt.codec.types import V5, V311
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Place


def test_a_kept_session_is_resumed_until_it_is_ended() -> None:
    profile = Profile("c", expiry_s=60)
    packet, last = profile.connect_packet(None, 1, ends=False), profile.connect_packet(None, 2, ends=True)
    assert (packet.clean_start, packet.properties.session_expiry_interval) == (False, 60)
    assert (last.clean_start, last.properties.session_expiry_interval) == (True, 0)


def test_a_session_without_a_time_begins_anew_each_time() -> None:
    profile = Profile("c", expiry_s=0)
    assert not profile.kept
    assert profile.connect_packet(None, 1, ends=False).clean_start


def test_a_client_says_where_it_is_and_whether_it_may_be_sent_elsewhere() -> None:
    place = Place(1.5, -2.25)
    stays = Profile("c").connect_packet(place, 1, ends=False)
    roams = Profile("c", roams=True).connect_packet(None, 1, ends=False)
    assert stays.properties.user_properties == (("geo-location", "1.5000,-2.2500"), ("geo-stay", "1"))
    assert roams.properties.user_properties == (("geo-roam", "1"),)


def test_mqtt_3_1_1_has_no_properties() -> None:
    packet = Profile("c", V311).connect_packet(Place(0, 0), 1, ends=False)
    assert (packet.version, packet.properties) == (V311, NO_PROPERTIES)


def test_a_will_names_its_connection_and_is_not_left_in_the_end() -> None:
    profile = Profile("c", V5, will_topic="will/x", will_delay_s=3)
    will = profile.connect_packet(None, 4, ends=False).will
    assert will is not None
    assert (will.topic, will.payload, will.qos) == ("will/x", b"will:c:4", 1)
    assert will.properties.will_delay_interval == 3
    assert profile.connect_packet(None, 5, ends=True).will is None
