"""The one list of strategies. A name of the form `package.module:Class` means a strategy of the user's own.

Loading a strategy declares its messages; those of the parts that all strategies share are declared here, too.
"""

import importlib
from difflib import get_close_matches

from geomq.errors import ConfigError
from geomq.routing import edition_messages, retained, shared, travellers
from geomq.routing.adaptive import Adaptive
from geomq.routing.dht import Dht
from geomq.routing.disgb_events import DisgbEvents
from geomq.routing.disgb_subscriptions import DisgbSubscriptions
from geomq.routing.flooding import FloodEvents, FloodSubscriptions, Single
from geomq.routing.georendezvous import GeoRendezvous
from geomq.routing.grid_quorum import GridQuorum
from geomq.routing.groups import BroadcastGroups
from geomq.routing.mesh import Mesh
from geomq.routing.message_registry import declare
from geomq.routing.messages import Message
from geomq.routing.strategy import Strategy

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

PARTS = {
    "members": shared.MESSAGES,
    "sessions": travellers.MESSAGES,
    "retained": retained.MESSAGES,
    "editions": edition_messages.MESSAGES,
}
"""What brokers say to each other whatever the strategy. What is kept of a part's messages belongs to no edition."""


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
for _name, _messages in PARTS.items():
    declare(_messages, by=_name, part=_name, own=True)


def strategy_class(name: str) -> type[Strategy]:
    """The class behind a strategy's name."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" in name:
        return _imported(name)
    close = get_close_matches(name, STRATEGIES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(STRATEGIES)}"
    raise ConfigError(f"unknown strategy {name!r}; {hint}")


def _imported(name: str) -> type[Strategy]:
    module_name, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # the user's module may fail in any way
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        hint = "; it has to be in the working directory or on PYTHONPATH" if missing else ""
        raise ConfigError(f"cannot load strategy {name!r}: {' '.join(str(error).split())}{hint}") from error
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise ConfigError(f"{name!r} is no subclass of geomq.routing.strategy.Strategy")
    declare(messages_of(found), by=f"strategy {name!r}")
    return found
