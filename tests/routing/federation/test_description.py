"""Descriptions: what they stand for, and what is refused, in one line."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import ConfigError
from geomq.geo import GridAreas, Location, PolygonAreas, SoleArea
from geomq.routing.core.model import CONFIGURED, Edition
from geomq.routing.federation.description import (
    BrokerEntry,
    Description,
    check_description,
    decode_description,
    encode_description,
    federation_of,
    in_order,
)

AMS = BrokerEntry("ams", (52.4, 4.9), "ams:1")
BER = BrokerEntry("ber", (52.5, 13.4), "ber:1")
WEST = "POLYGON((-180 -90, 10 -90, 10 90, -180 90, -180 -90))"
EAST = "POLYGON((10 -90, 180 -90, 180 90, 10 90, 10 -90))"


def two(**more: Any) -> Description:
    return Description((AMS, BER), strategy="flood_events", **more)


def with_areas(west: str, east: str) -> Description:
    areas = [msgspec.structs.replace(AMS, area=west), msgspec.structs.replace(BER, area=east)]
    return msgspec.structs.replace(two(), brokers=tuple(areas))


def test_areas_are_the_nearest_brokers_unless_a_grid_or_fences_are_given() -> None:
    assert federation_of(two()).owner(Location(52.0, 12.0)) == "ber"
    assert isinstance(federation_of(two(grid_deg=6)).areas, GridAreas)
    given_areas = federation_of(with_areas(WEST, EAST))
    assert isinstance(given_areas.areas, PolygonAreas)
    assert given_areas.owner(Location(0.0, 9.0)) == "ams"
    assert [d.areas_kind for d in (two(), two(grid_deg=6), with_areas(WEST, EAST))] == ["nearest", "grid", "given"]


def test_one_broker_owns_everything_and_needs_no_place() -> None:
    assert isinstance(federation_of(Description((BrokerEntry("me"),))).areas, SoleArea)


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        (with_areas(WEST, WEST), "areas of brokers ams and ber overlap"),
        (Description((AMS, AMS)), "two brokers of the federation are named ams"),
        (Description((BER, AMS)), "sorted by name"),
        (
            Description((AMS, msgspec.structs.replace(BER, location=None))),
            "broker ber .* needs a location",
        ),
        (Description((AMS, msgspec.structs.replace(BER, location=(99.0, 0.0)))), "broker ber: latitude"),
        (Description((AMS, msgspec.structs.replace(BER, area=EAST))), "not for ams"),
        (msgspec.structs.replace(with_areas(WEST, EAST), grid_deg=6), "either a grid or given areas"),
        (two(grid_deg=7), "divides 90"),
        (
            Description((AMS, msgspec.structs.replace(BER, address=None))),
            "broker ber .* needs an address",
        ),
        (Description((AMS, msgspec.structs.replace(BER, address="ber:0"))), "invalid port"),
        (Description((AMS, BER), strategy="single"), "serves one broker"),
        (Description((AMS, BER), strategy="floodevents"), "did you mean flood_events"),
        (Description((AMS, BER), strategy="os:system"), "not that of this broker's config"),
        (Description((AMS, BER), strategy="dht", options={"x": 1}), "strategy options"),
        (Description((AMS, BER), strategy="mesh", options={"links": [["ams", "rom"]]}), "no broker rom"),
        (Description((AMS, BER), strategy="dht", options={"x": float("nan")}), "only strings, numbers"),
        (two(edition=Edition(-1, "")), "out of range"),
    ],
)
def test_a_description_nobody_could_follow_is_refused_in_one_line(description: Description, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        check_description(description)
    assert "\n" not in str(caught.value)


def test_a_strategy_of_the_users_own_is_taken_if_the_config_names_it() -> None:
    own = "geomq.routing.strategies.flooding:FloodEvents"
    assert check_description(Description((AMS, BER), strategy=own), own_strategy=own).ids == ("ams", "ber")


def test_a_description_survives_the_wire_and_garbage_does_not() -> None:
    whole = two(edition=Edition(3, "ams"), routing=Edition(2, "ber"), history=(CONFIGURED, Edition(2, "ber")))
    assert decode_description(encode_description(whole)) == whole
    assert in_order([BER, AMS]) == (AMS, BER)
    for data in (b"", b"\xc1", msgspec.msgpack.encode({"brokers": []}), b"\x00" * (1 << 24)):
        with pytest.raises(ConfigError):
            decode_description(data)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    try:
        decode_description(data)
    except ConfigError:
        return
    assert len(data) > 1


def test_later_editions_win_and_of_equal_numbers_the_last_name() -> None:
    assert Edition(3, "a") > Edition(2, "z") > Edition(2, "a") > CONFIGURED
    assert (str(Edition(3, "a")), str(CONFIGURED)) == ("3:a", "as configured")
