"""What a received event tells, also when its publisher wrote nonsense into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.client.message import Message, message_of
from geomq.geo import Circle, Location
from geomq.mqtt.codec.packets import Publish


def test_places_are_read_from_the_first_property_of_their_name() -> None:
    user = (("geo-location", "1,2"), ("geo-location", "3,4"), ("geo-fence", "geo:5,6;u=7"))
    message = Message("t", b"", user=user)
    assert message.location == Location(1, 2)
    assert message.fence == Circle(Location(5, 6), 7)
    assert message.user_property("none") is None


@given(st.text(), st.text())
def test_nonsense_in_place_of_a_place_is_none(location: str, fence: str) -> None:
    message = Message("t", b"", user=(("geo-location", f"x{location}"), ("geo-fence", f"x{fence}")))
    assert message.location is None
    assert message.fence is None


def test_payloads_read_as_text_and_json() -> None:
    assert Message("t", "é".encode()).text == "é"
    assert Message("t", b"\xff").text == "\ufffd"
    assert Message("t", b"[1]").json() == [1]
    with pytest.raises(ValueError):
        Message("t", b"[").json()


def test_a_message_without_properties_is_plain() -> None:
    assert message_of(Publish("a/b", b"x", 1, True, packet_id=5)) == Message("a/b", b"x", 1, True)
