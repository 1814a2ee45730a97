"""Names of strategies: the known ones, the user's own, and the mistaken."""

from pathlib import Path

import pytest

from geomq.errors import ConfigError
from geomq.geo import Location, NearestAreas
from geomq.routing.core.model import BrokerId
from geomq.routing.core.strategy import Strategy
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.strategies.dht import Dht
from geomq.routing.strategies.registry import STRATEGIES, strategies_for, strategy_class


class Mine(Dht):
    """A user's strategy."""


not_a_strategy = 7


def test_the_list_is_complete() -> None:
    assert list(STRATEGIES) == [
        "single",
        "flood_events",
        "flood_subscriptions",
        "disgb_events",
        "disgb_subscriptions",
        "dht",
        "grid_quorum",
        "broadcast_groups",
        "mesh",
        "georendezvous",
        "adaptive",
    ]
    assert all(issubclass(strategy, Strategy) for strategy in STRATEGIES.values())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_known_name_is_its_class(name: str) -> None:
    assert strategy_class(name) is STRATEGIES[name]


def test_a_user_names_a_class_of_their_own() -> None:
    assert strategy_class("geomq.routing.strategies.dht:Dht") is Dht
    assert strategy_class("tests.routing.strategies.test_registry:Mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("disgb_event", "did you mean disgb_events?"),
        ("adaptiv", "did you mean adaptive?"),
        ("quantum", "known are single, flood_events"),
        ("", "known are single"),
        ("no.such.module:Thing", "cannot load strategy 'no.such.module:Thing': No module named 'no'"),
        ("geomq.routing.strategies.dht:Nothing", "has no attribute 'Nothing'"),
        ("tests.routing.strategies.test_registry:not_a_strategy", "is not a subclass of geomq.routing.core.strategy"),
        ("builtins:dict", "is not a subclass"),
        (":Thing", "cannot load strategy"),
        ("geomq:", "cannot load strategy"),
        ("..relative:Thing", "cannot load strategy"),
    ],
)
def test_a_mistaken_name_is_explained_in_one_line(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        strategy_class(name)
    assert hint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_module_that_cannot_be_loaded_is_the_users_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_strategy.py").write_text("raise RuntimeError('two\\nlines')\n")
    (tmp_path / "garbled_strategy.py").write_text("class Mine(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module, reason in (("broken_strategy", "two lines"), ("garbled_strategy", "invalid syntax")):
        with pytest.raises(ConfigError, match=f"cannot load strategy '{module}:Mine': {reason}"):
            strategy_class(f"{module}:Mine")


def test_only_strategies_that_can_serve_a_federation_are_named_for_it() -> None:
    alone = Federation.alone(BrokerId("a"))
    assert strategies_for(alone) == list(STRATEGIES)
    places = [Location(0.0, 0.0), Location(0.0, 9.0)]
    two = Federation(
        [BrokerSite(BrokerId(name), place) for name, place in zip("ab", places, strict=True)], NearestAreas(places)
    )
    assert strategies_for(two) == [name for name in STRATEGIES if name != "single"]
