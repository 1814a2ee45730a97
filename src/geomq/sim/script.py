"""A script: what the clients do, when and at which broker."""

from typing import NamedTuple

from geomq.routing.core.events import RoutingEvent
from geomq.routing.core.model import BrokerId


class Step(NamedTuple):
    """At `t_ms` a client of `home` acts; the home hears of it one client latency later."""

    t_ms: int
    home: BrokerId
    event: RoutingEvent
