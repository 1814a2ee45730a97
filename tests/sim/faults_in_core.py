"""Faults of one line in the node and its parts: each is a piece of a method's source, and what takes its place."""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from geomq.routing.federation.live_editions import LiveEditions
from geomq.routing.federation.routings import Routings
from geomq.routing.node import Node
from geomq.routing.retained.sync import RetainedSync
from geomq.routing.retained.versions import RetainedVersions
from geomq.routing.strategies.rendezvous import RendezvousStrategy


class CoreFault(NamedTuple):
    owner: type
    method: str
    before: str
    after: str
    strategy: str = "disgb_subscriptions"


CORE_FAULTS = {
    "the node asks for nothing": CoreFault(Node, "handle", "return self._take_actions(now)", "return []"),
    "what editions ask for is lost": CoreFault(Node, "_take_actions", "actions += self._said", "pass"),
    "an edition never advances": CoreFault(LiveEditions, "advance", "if not self.changing:", "if True:"),
    "nobody waits for the others": CoreFault(LiveEditions, "_all_reached", "if self._me", "if True or self._me"),
    "own events keep to the old routing": CoreFault(LiveEditions, "advance", "routings.publishing = strategy", "pass"),
    "a new routing is not introduced to the clients": CoreFault(
        Routings, "introduce", "in self._clients.items():", "in ():"
    ),
    "later editions are not asked for": CoreFault(LiveEditions, "_ask", "self._asked is None and", "False and"),
    "a plan sends nowhere": CoreFault(RendezvousStrategy, "plan", "for target in targets if", "for target in () if"),
    "a plan leaves own clients out": CoreFault(RendezvousStrategy, "plan", "matched.get(self.me, ())", "()"),
    "plans never change": CoreFault(RendezvousStrategy, "plans_since", "return ", "return 0 # "),
    "share groups do not end a plan": CoreFault(
        Node, "plan", "or self.shared.concerns(topic)", "", "flood_subscriptions"
    ),
    "a plan holds while a change is under way": CoreFault(Node, "plan", "not self.routings.is_settled or", ""),
    "arrivals are planned for nobody": CoreFault(
        Node, "plan_arrival", "return strategy.plan_forwarded(topic, peer) if", "return () if", "flood_events"
    ),
    "digests are not compared": CoreFault(RetainedSync, "peer_up", "if self.active and", "if False and"),
    "a digest says nothing": CoreFault(RetainedSync, "said", "digest != self._versions.digest", "False"),
    "what is asked for is not sent": CoreFault(RetainedSync, "on_deadline", "if version is not None:", "if False:"),
    "the first slice is the last": CoreFault(RetainedSync, "on_deadline", "len(some) < self.slice", "True"),
    "an earlier retained event replaces a later": CoreFault(
        RetainedSync, "said", "Version(event.id.sequence, event.id.origin) > before", "True"
    ),
    "the clock alone makes versions": CoreFault(
        RetainedVersions, "next", "now_ms if before is None else", "now_ms if True else"
    ),
    "deletions are not sent": CoreFault(
        RetainedSync, "_changed", "for peer in self._peers():", "for peer in () if happened.deleted else self._peers():"
    ),
    "an id is given twice": CoreFault(Node, "take_ids", "self._sequence += count", "pass"),
}


@contextmanager
def planted(fault: CoreFault) -> Iterator[None]:
    """The method with the fault in it, for a while."""
    function: Any = getattr(fault.owner, fault.method)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(fault.before) == 1, f"{fault.before!r} does not stand once in {fault.method}"
    made: dict[str, Any] = {}
    exec(source.replace(fault.before, fault.after), function.__globals__, made)
    setattr(fault.owner, fault.method, made[fault.method])
    try:
        yield
    finally:
        setattr(fault.owner, fault.method, function)
