"""What a program gives the client is checked before it is sent."""

from collections.abc import Callable

import pytest

from geomq.client.errors import ClientError, RefusedError
from geomq.client.packets import (
    Will,
    bytes_of,
    checked_filter,
    checked_handling,
    checked_qos,
    places,
    plain_errors,
    refusal,
)
from geomq.errors import GeometryError, UsageError
from geomq.mqtt.codec import packets
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode


def test_a_will_becomes_its_packet() -> None:
    properties = Properties(will_delay_interval=5, user_properties=(("geo-fence", "geo:1.0,2.0;u=3.0"),))
    will = Will(topic="t", payload="x", qos=1, retain=True, delay_s=5, to=(1, 2, 3))
    assert will.packet() == packets.Will("t", b"x", 1, True, properties)
    assert Will(topic="t").packet() == packets.Will("t")


def test_places_become_user_properties() -> None:
    assert places(at=(1, 2), fence="geo:1,2;u=3") == (("geo-location", "1.0,2.0"), ("geo-fence", "geo:1,2;u=3"))
    assert places() == ()
    assert bytes_of("é") == bytes_of("é".encode()) == b"\xc3\xa9"


WRONG: dict[str, Callable[[], object]] = {
    "QoS must be 0, 1 or 2, not 3": lambda: checked_qos(3),
    "retain handling must be 0, 1 or 2, not 3": lambda: checked_handling(3),
    "'#' must be the whole last level": lambda: checked_filter("#/a"),
    "names no topic filter after the share name": lambda: checked_filter("$share/g"),
    "contains a wildcard": lambda: Will(topic="#").packet(),
}


@pytest.mark.parametrize("why", WRONG)
def test_what_cannot_be_sent_is_one_line(why: str) -> None:
    with pytest.raises(UsageError, match=f"^cannot do it: .*{why}"), plain_errors("cannot do it"):
        WRONG[why]()


def test_errors_say_what_was_tried_but_refusals_speak_for_themselves() -> None:
    with pytest.raises(ClientError, match=r"^cannot do it: lost$"), plain_errors("cannot do it"):
        raise ClientError("lost")
    with pytest.raises(RefusedError, match=r"^the broker refused to connect: Banned"), plain_errors("cannot do it"):
        raise refusal("connect", ReasonCode.BANNED, NO_PROPERTIES)
    with pytest.raises(GeometryError, match=r"^a fence"), plain_errors("cannot do it"):
        places(fence=(1, 2))  # type: ignore[arg-type]
