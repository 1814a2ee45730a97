"""Each change makes the next edition, or says in one line why it cannot."""

import pytest

from geomq.errors import ConfigError
from geomq.routing.core.model import CONFIGURED, Edition
from geomq.routing.federation.changes import AddBroker, Change, RemoveBroker, SetAreas, SetStrategy, changed
from geomq.routing.federation.description import HISTORY_MAX, BrokerEntry, Description

AMS, BER, ROM = (
    BrokerEntry(name, (50.0, at), f"{name}:1") for name, at in (("ams", 4.0), ("ber", 13.0), ("rom", 20.0))
)
TWO = Description((AMS, BER), strategy="dht", options={})
GROUPS = Description((AMS, BER), strategy="broadcast_groups")


def test_a_change_is_the_next_edition_and_remembers_those_before() -> None:
    first = changed(TWO, SetStrategy("mesh", {"redundancy": 1}), by="ber")
    assert (first.edition, first.routing, first.history) == (Edition(1, "ber"), Edition(1, "ber"), (CONFIGURED,))
    second = changed(first, AddBroker(ROM), by="ams")
    assert second.names == ("ams", "ber", "rom")
    assert (second.edition, second.history) == (Edition(2, "ams"), (CONFIGURED, Edition(1, "ber")))
    assert second.options == {"redundancy": 1}


def test_what_changes_nothing_is_no_edition() -> None:
    for change in (SetStrategy("dht", {}), AddBroker(AMS), SetAreas("nearest")):
        assert changed(TWO, change, by="ams") is TWO


def test_a_strategy_that_takes_changes_goes_on_unless_somebody_leaves() -> None:
    begun = changed(TWO, SetStrategy("broadcast_groups", {}), by="ams")
    grown = changed(begun, AddBroker(ROM), by="ams")
    assert grown.routing == begun.edition
    assert changed(grown, RemoveBroker("rom"), by="ams").routing == Edition(3, "ams")
    assert changed(GROUPS, AddBroker(ROM), by="ams").routing == Edition(1, "ams"), "each config began on its own"
    assert changed(grown, SetStrategy("broadcast_groups", {"join_ms": 9.0}), by="ams").routing == Edition(3, "ams")


def test_areas_go_from_one_kind_to_another() -> None:
    fences = {"ams": "POLYGON((0 0, 9 0, 9 9, 0 0))", "ber": "POLYGON((10 0, 19 0, 19 9, 10 0))"}
    given_areas = changed(TWO, SetAreas("given", areas=fences), by="ams")
    assert [entry.area for entry in given_areas.brokers] == list(fences.values())
    grid = changed(given_areas, SetAreas("grid", grid_deg=6), by="ams")
    assert (grid.areas_kind, grid.grid_deg) == ("grid", 6)
    assert changed(grid, SetAreas("nearest"), by="ams").areas_kind == "nearest"


def test_a_broker_may_bring_the_strategy_that_two_need() -> None:
    alone = Description((AMS,), strategy="single")
    assert changed(alone, AddBroker(BER, strategy="dht"), by="ams").strategy == "dht"


def test_a_broker_is_replaced_only_on_demand() -> None:
    moved = BrokerEntry("ber", (50.0, 13.0), "elsewhere:2")
    assert changed(TWO, AddBroker(moved, replace=True), by="ams").entry("ber") == moved
    with pytest.raises(ConfigError, match="two brokers of the federation are named ber"):
        changed(TWO, AddBroker(moved), by="ams")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (RemoveBroker("rom"), "no broker 'rom'"),
        (SetAreas("grid"), "grid_deg is required"),
        (SetAreas("nearest", grid_deg=6), "grid_deg is required"),
        (SetAreas("given"), "areas are required"),
        (SetAreas("given", areas={"rom": "x"}), "no broker 'rom'"),
    ],
)
def test_impossible_changes_are_refused(change: Change, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        changed(TWO, change, by="ams")


def test_the_last_broker_stays_and_history_is_bounded() -> None:
    with pytest.raises(ConfigError, match="the last"):
        changed(Description((AMS,)), RemoveBroker("ams"), by="ams")
    description = TWO
    for number in range(HISTORY_MAX + 10):
        description = changed(description, SetAreas("grid", grid_deg=6 if number % 2 else 3), by="ams")
    assert len(description.history) == HISTORY_MAX
