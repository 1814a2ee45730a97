"""Strategies and options as a person types them."""

import pytest

from geomq.errors import ConfigError
from geomq.routing.strategies.choice import names_of, options_for, typed


def test_a_list_of_strategies_names_each_once() -> None:
    assert names_of("dht, mesh,hubs:Hubs,dht") == ["dht", "mesh", "hubs:Hubs"]


@pytest.mark.parametrize("text", ["", "dht,", ",dht", "dht,,mesh"])
def test_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="an empty name"):
        names_of(text)


@pytest.mark.parametrize(
    ("strategy", "text", "value"),
    [
        ("mesh", "redundancy=3", 3),
        ("mesh", "links=null", None),
        ("mesh", 'links=[["a", "b"]]', (("a", "b"),)),
        ("mesh", 'groups={"a": "=b"}', {"a": "=b"}),
        ("grid_quorum", "notify_twice=true", True),
        ("adaptive", "patience=1.5", 1.5),
        ("broadcast_groups", "cloud=12", "12"),
        ("broadcast_groups", "cloud=a=b", "a=b"),
        ("broadcast_groups", "formation=fixed", "fixed"),
        ("broadcast_groups", 'lcm={"a": 3}', {"a": 3.0}),
    ],
)
def test_a_value_gets_the_type_the_strategy_declares(strategy: str, text: str, value: object) -> None:
    name = text.partition("=")[0]
    chosen = options_for([strategy], [text])
    assert chosen == {strategy: {name: value}}
    assert type(chosen[strategy][name]) is type(value)
    assert options_for([strategy], typed(chosen[strategy])) == chosen


def test_an_option_goes_to_those_that_have_it_and_the_last_counts() -> None:
    given = ["announce_ms=20", "redundancy=2", "announce_ms=30"]
    assert options_for(["mesh", "dht", "broadcast_groups"], given) == {
        "mesh": {"announce_ms": 30, "redundancy": 2},
        "dht": {},
        "broadcast_groups": {"announce_ms": 30.0},
    }


@pytest.mark.parametrize(
    ("names", "text", "reason"),
    [
        (["dht"], "x=1", "none of these strategies has an option 'x': none has any"),
        (
            ["dht", "grid_quorum", "adaptive"],
            "x=1",
            "an option 'x': grid_quorum has notify_twice; adaptive has patience",
        ),
        (["mesh"], "redundancy", "an option must be name=value, not 'redundancy'"),
        (["mesh"], "=3", "an option must be name=value, not '=3'"),
        (["mesh"], "redundancy=many", "option redundancy of mesh: Expected `int`, got `str`, not 'many'"),
        (["mesh"], "redundancy=9", "option redundancy of mesh: Expected `int` <= 8, not '9'"),
        (["mesh"], "links=[", "option links of mesh: Expected `array | null`"),
        (["mesh"], 'links=[["a"]]', "option links of mesh: Expected `array` of length 2"),
        (["broadcast_groups"], 'lcm={"a": "x"}', "option lcm of broadcast_groups: Expected `float`"),
        (["georendezvous"], "refresh_ms=nan", "option refresh_ms of georendezvous"),
        (["nope"], "x=1", "unknown strategy 'nope'"),
    ],
)
def test_a_mistaken_option_is_refused_in_one_line(names: list[str], text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options_for(names, [text])
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
