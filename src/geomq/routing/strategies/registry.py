"""The one list of strategies. A name of the form `package.module:Class` means a strategy of the user's own.

Loading a strategy declares its messages.
"""

import importlib
from difflib import get_close_matches

from geomq.errors import ConfigError
from geomq.routing.core.message_registry import declare
from geomq.routing.core.messages import Message
from geomq.routing.core.strategy import Strategy
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.adaptive import Adaptive
from geomq.routing.strategies.dht import Dht
from geomq.routing.strategies.disgb_events import DisgbEvents
from geomq.routing.strategies.disgb_subscriptions import DisgbSubscriptions
from geomq.routing.strategies.flooding import FloodEvents, FloodSubscriptions, Single
from geomq.routing.strategies.georendezvous import GeoRendezvous
from geomq.routing.strategies.grid_quorum import GridQuorum
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.mesh.mesh import Mesh

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Single,
    "flood_events": FloodEvents,
    "flood_subscriptions": FloodSubscriptions,
    "disgb_events": DisgbEvents,
    "disgb_subscriptions": DisgbSubscriptions,
    "dht": Dht,
    "grid_quorum": GridQuorum,
    "broadcast_groups": BroadcastGroups,
    "mesh": Mesh,
    "georendezvous": GeoRendezvous,
    "adaptive": Adaptive,
}


def messages_of(strategy: type[Strategy]) -> tuple[type[Message], ...]:
    """What a strategy sends to peers: what its class and all it derives from name."""
    found: list[type[Message]] = []
    for derived in reversed(strategy.__mro__):
        declared = vars(derived).get("messages", ())
        if not isinstance(declared, tuple):
            raise ConfigError(f"{strategy.__name__}: `messages` is not a tuple of messages")
        found += declared
    return tuple(dict.fromkeys(found))


for _name, _strategy in STRATEGIES.items():
    declare(messages_of(_strategy), by=_name, own=True)


def strategy_class(name: str) -> type[Strategy]:
    """The class behind a strategy's name."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" in name:
        return _imported(name)
    close = get_close_matches(name, STRATEGIES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(STRATEGIES)}"
    raise ConfigError(f"unknown strategy {name!r}; {hint}")


def strategies_for(federation: Federation) -> list[str]:
    """The names of those that can serve such a federation."""
    return [name for name, strategy in STRATEGIES.items() if _can_serve(strategy, federation)]


def _can_serve(strategy: type[Strategy], federation: Federation) -> bool:
    try:
        strategy.check(federation)
    except ConfigError:
        return False
    return True


def _imported(name: str) -> type[Strategy]:
    module_name, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # the user's module may fail in any way
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        hint = "; it must be in the working directory or on PYTHONPATH" if missing else ""
        raise ConfigError(f"cannot load strategy {name!r}: {' '.join(str(error).split())}{hint}") from error
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise ConfigError(f"{name!r} is not a subclass of geomq.routing.core.strategy.Strategy")
    declare(messages_of(found), by=f"strategy {name!r}")
    return found
