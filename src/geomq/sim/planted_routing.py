"""Faults of one line in the messages of brokers: links, strategies, node, editions, retained events, moves."""

from geomq.sim.planting import Fault

_LINK = "geomq.routing.wire.link"
_PEERING = "geomq.broker.peers.peering"
_RENDEZVOUS = "geomq.routing.strategies.rendezvous"
_SHARED = "geomq.routing.sharing.groups"
_NODE = "geomq.routing.node"
_EDITIONS = "geomq.routing.federation.live_editions"
_ROUTINGS = "geomq.routing.federation.routings"
_RETAINED = "geomq.routing.retained.sync"
_MOVED_EVENTS = "geomq.routing.sessions.moved_events"
_ARRIVALS = "geomq.routing.sessions.arrivals"
_TRAILS = "geomq.routing.sessions.trails"
_SEARCHES = "geomq.routing.sessions.searches"
_TRANSFER = "geomq.broker.roaming.session_transfer"
_DRIVER = "geomq.broker.driver"

IN_ROUTING: tuple[Fault, ...] = (
    # Links.
    Fault(
        "a link forgets one message more than was acknowledged",
        _LINK,
        "while self.acknowledged < next_number:",
        "while self._outbox and self.acknowledged <= next_number:",
        seed=18,
    ),
    Fault(
        "after a reconnection nothing is sent again",
        _LINK,
        "self._acknowledged(hello.heard_next, now)",
        "self._acknowledged(self._first + len(self._outbox), now)",
        seed=68,
    ),
    Fault(
        "a link takes in what follows a gap",
        _LINK,
        "new = messages[known:] if known >= 0 else ()",
        "new = messages[max(known, 0):]",
        seed=68,
    ),
    Fault(
        "a peer's message is acknowledged before it is on disk",
        _PEERING,
        "if self._kept is None or not (durable or peer.held):",
        "if self._kept is None or not peer.held:",
        seed=18,
    ),
    # Routing.
    Fault(
        "events that come twice are delivered twice",
        "geomq.routing.core.seen",
        "matches = tuple([match for match in matches if match.client not in clients])",
        "matches = tuple(matches)",
        seed=2,
    ),
    Fault(
        "a rendezvous does not notify homes of what matched",
        _RENDEZVOUS,
        "elif self.notifies(event, home):",
        "elif False and self.notifies(event, home):",
        seed=3,
    ),
    Fault(
        "a client that unsubscribes stays at its rendezvous",
        _RENDEZVOUS,
        "self.send(target, DropSubscription(client, topic_filter))",
        "pass",
        seed=103,
    ),
    Fault(
        "a repeat at a broadcast group hides an event from others",
        "geomq.routing.strategies.groups.broadcast_groups",
        "fresh = self.seen.unseen(event.id, matches) if matches else ()",
        "fresh = self.seen.unseen(event.id, matches) if matches and not repeated else ()",
        seed=36,
    ),
    Fault(
        "a member of a share group is served twice",
        _SHARED,
        "elif not self.is_first(event.id, group, len(asked)):",
        "elif len(asked) and not self.is_first(event.id, group, len(asked)):",
        seed=32,
    ),
    Fault(
        "share groups do not hear of members that moved",
        _SHARED,
        "self._change(Subscriber(peer, client), location, ready=ready)",
        "self._change(Subscriber(peer, client), None, ready=ready)",
        seed=18,
    ),
    Fault(
        "peers that meet again do not exchange their members",
        _SHARED,
        "self._told.pop(peer, None)",
        "pass",
        seed=89,
    ),
    # The node and its driver.
    Fault(
        "the node asks for nothing",
        _NODE,
        "self._handlers[type(event)](event, now)",
        "return self._handlers[type(event)](event, now) or []",
        seed=0,
    ),
    Fault(
        "the node hands out one id twice",
        _NODE,
        "self._sequence += count",
        "self._sequence += count - 1",
        seed=3,
    ),
    Fault(
        "a client that is gone stays in the routing",
        _NODE,
        "state = self.clients.pop(happened.client, None)",
        "state = self.clients.get(happened.client)",
        seed=0,
    ),
    Fault(
        "the node's deadlines are not kept",
        _DRIVER,
        "self._timer = self._core.loop.call_at(deadline / 1000.0, self._due)",
        "pass",
        seed=0,
    ),
    Fault(
        "an event overtakes what took the fast path before it",
        _DRIVER,
        "self._before_sending()",
        "pass",
        seed=2,
    ),
    # Editions.
    Fault(
        "what editions ask for is not sent",
        _EDITIONS,
        "self._act(SendToPeer(peer, message))",
        "pass",
        seed=6,
    ),
    Fault(
        "nobody waits for the others in a change",
        _EDITIONS,
        "return reached is not None and reached.phase >= phase",
        "return True",
        seed=196,
    ),
    Fault(
        "own events keep to the old routing",
        _EDITIONS,
        "routings.publishing = strategy",
        "pass",
        seed=6,
    ),
    Fault(
        "a new routing is not introduced to the clients",
        _EDITIONS,
        "routings.introduce(strategy, now)",
        "pass",
        seed=6,
    ),
    Fault(
        "promised messages do not wait for a peer to adopt the edition",
        _ROUTINGS,
        "elif action.peer in self.within.get(key, ()) or is_promised(action.message):",
        "elif action.peer in self.within.get(key, ()):",
        seed=20,
    ),
    # Retained events.
    Fault(
        "brokers that meet again do not compare what they retain",
        _RETAINED,
        "if digest != self._versions.digest:",
        "if False:",
        simulation="routing",
    ),
    Fault(
        "deletions of retained events are not sent",
        _RETAINED,
        "for peer in self._peers():",
        "for peer in () if happened.deleted else self._peers():",
    ),
    Fault(
        "an earlier retained event replaces a later one",
        _RETAINED,
        "if not is_own(event.topic) and (before is None or Version(event.id.sequence, event.id.origin) > before):",
        "if not is_own(event.topic):",
    ),
    # Sessions that move.
    Fault(
        "a new home does not know what its client had",
        _ARRIVALS,
        "known = {} if before is None else before.had",
        "known, had = {}, ()",
    ),
    Fault(
        "events do not follow a client that left",
        _MOVED_EVENTS,
        "yield SendToPeer(to, DeliverMoved(event, found, tokens, hops))",
        "pass",
    ),
    Fault(
        "a new home does not wait for what a former one still sends",
        _TRAILS,
        "return self.visit.is_open and not self.visit.is_over",
        "return False",
    ),
    Fault(
        "what was held for a client is forgotten when it leaves",
        _MOVED_EVENTS,
        "if not stay.visit.exit:",
        "if True:",
    ),
    Fault(
        "a session that comes after its client has gone on with another stays behind",
        _SEARCHES,
        "if home is not None and client not in self._pending and self._sessions.find(client) is None:",
        "if False:",
        seed=13,
        simulation="storm",
    ),
    Fault(
        "what is in flight moves under new packet ids",
        _TRANSFER,
        "_moved(d.message, -now), d.qos, d.retain, d.identifiers, d.packet_id, d.phase is Phase.RELEASED",
        "_moved(d.message, -now), d.qos, d.retain, d.identifiers, 0, False",
    ),
    Fault(
        "a session moves without its receipts",
        _TRANSFER,
        "tuple(receipts),",
        "(),",
        seed=17,
    ),
)
