"""Faults of one line that the simulations must find: a promise is tested only if breaking it is noticed.

`python -m geomq.sim.soak --planted` looks for each of them. Where a line has changed, a test says so.
"""

from geomq.sim.planting import Fault

_LINK = "geomq.routing.wire.link"
_PEERING = "geomq.broker.peers.peering"
_PEER_STORE = "geomq.broker.peers.store"
_STORE = "geomq.broker.storage.store"
_COMMITTER = "geomq.broker.storage.committer"
_OUTBOX = "geomq.broker.storage.outbox"
_OUTBOUND = "geomq.mqtt.session.outbound"
_INBOUND = "geomq.mqtt.session.inbound"
_SESSION = "geomq.mqtt.session.session"
_REGISTRY = "geomq.broker.clients.registry"
_RENDEZVOUS = "geomq.routing.strategies.rendezvous"
_SHARED = "geomq.routing.sharing.groups"
_NODE = "geomq.routing.node"
_EDITIONS = "geomq.routing.federation.live_editions"
_ROUTINGS = "geomq.routing.federation.routings"
_RETAINED = "geomq.routing.retained.sync"
_MOVES = "geomq.routing.sessions.moves"
_TRANSFER = "geomq.broker.roaming.session_transfer"
_DRIVER = "geomq.broker.driver"
_CLOUD = "geomq.broker.cloud.codec"
_FASTPATH = "geomq.broker.fastpath.publishing"
_ARRIVALS = "geomq.broker.fastpath.arrivals"

PLANTED: tuple[Fault, ...] = (
    # Links.
    Fault(
        "a link forgets one message more than was acknowledged",
        _LINK,
        "while self._first < next_number:",
        "while self._outbox and self._first <= next_number:",
    ),
    Fault(
        "after a reconnection nothing is sent again",
        _LINK,
        "self._acknowledged(hello.heard_next, now)",
        "self._acknowledged(self._first + len(self._outbox), now)",
    ),
    Fault(
        "a link takes in what follows a gap",
        _LINK,
        "new = messages[known:] if known >= 0 else ()",
        "new = messages[max(known, 0):]",
    ),
    Fault(
        "a peer's message is acknowledged before it is on disk",
        _PEERING,
        "if self._kept is None or not (durable or peer.held):",
        "if self._kept is None or not peer.held:",
    ),
    # Disk.
    Fault(
        "clients are answered before the disk has synced",
        _COMMITTER,
        "if not self._unsynced or not self._store.durable:",
        "if self._unsynced or not self._store.durable:",
    ),
    Fault(
        "clients are answered before anything is written",
        _OUTBOX,
        "self._held.append((connection, data))",
        "connection.send(data)",
    ),
    Fault(
        "numbers of stored messages begin anew after a start",
        _STORE,
        "self._next_number = loaded.state.epoch << EPOCH_SHIFT",
        "self._next_number = 1",
    ),
    Fault(
        "a message that others still wait for is deleted from disk",
        _STORE,
        "slot.references -= 1",
        "slot.references = 0",
    ),
    Fault(
        "a subscription is not written to disk",
        "geomq.broker.clients.subscribing",
        "self._core.store.put_subscription(client.id, SubscriptionRecord(subscription, written))",
        "pass",
    ),
    Fault(
        "what waits for a peer is not written to disk",
        _PEER_STORE,
        "self._write(OUTBOX + peer, key, data)",
        "pass",
    ),
    Fault(
        "what a peer has not acknowledged is erased from disk",
        _PEER_STORE,
        "while waiting and waiting[0].last < number:",
        "while waiting and waiting[0].first <= number:",
    ),
    Fault(
        "which events own clients had is not written to disk",
        _PEER_STORE,
        "self._store.put_note(SEEN, key, msgspec.msgpack.encode(delivered))",
        "pass",
    ),
    Fault(
        "what peers placed here is not written to disk",
        _PEER_STORE,
        "self._carry_out(kind, placed.receive(message))",
        "placed.receive(message)",
    ),
    # Sessions.
    Fault(
        "a resumed session does not repeat what is in flight",
        _OUTBOUND,
        "self._repeat = deque(self._flights.values()) if self._flights else None",
        "self._repeat = None",
    ),
    Fault(
        "a delivery that is done stays in the journal",
        _OUTBOUND,
        "self._journal.append(DeliveryRemoved(self._client_id, delivery.number))",
        "pass",
    ),
    Fault(
        "a received QoS 2 delivery is forgotten in a crash",
        _OUTBOUND,
        "self._journal.append(DeliveryReleased(self._client_id, delivery.number, packet_id))",
        "pass",
    ),
    Fault(
        "an expired message is delivered",
        _OUTBOUND,
        "if delivery.message.expired(now):",
        "if delivery.message.expired(0.0):",
    ),
    Fault(
        "a repeated QoS 2 publish counts as new",
        _INBOUND,
        "if packet_id in self._receipts:",
        "if packet_id in self._receipts and packet_id not in self._open:",
    ),
    Fault(
        "the receipt of a QoS 2 publish is not journalled",
        _INBOUND,
        "self._journal.append(ReceiptAdded(self._client_id, packet_id))",
        "pass",
    ),
    Fault(
        "a restarted session has forgotten its receipts",
        _REGISTRY,
        "session.restore(stored.deliveries, stored.receipts)",
        "session.restore(stored.deliveries, [])",
    ),
    Fault(
        "a session never expires",
        _REGISTRY,
        "if expires_at is not None and expires_at <= now:",
        "if expires_at is not None and expires_at <= 0.0:",
    ),
    Fault(
        "a client that says goodbye leaves its will",
        "geomq.mqtt.session.wills",
        "if farewell is not None and farewell.reason == ReasonCode.NORMAL_DISCONNECTION:",
        "if farewell is not None and farewell.reason != ReasonCode.NORMAL_DISCONNECTION:",
    ),
    Fault(
        "a client that reads again stays paused",
        _SESSION,
        "self._outbound.stalled = False",
        "self._outbound.stalled = True",
    ),
    Fault(
        "a QoS 2 event for which there is no room stays received",
        "geomq.broker.clients.publishing",
        "refusal = client.session.answer(packet.packet_id, packet.qos, reason, text)",
        "refusal = client.session.answer(packet.packet_id, packet.qos)",
    ),
    # Routing.
    Fault(
        "events that come twice are delivered twice",
        "geomq.routing.core.seen",
        "matches = tuple([match for match in matches if match.client not in clients])",
        "matches = tuple(matches)",
    ),
    Fault(
        "a rendezvous does not tell homes what matched",
        _RENDEZVOUS,
        "elif self.notifies(event, home):",
        "elif False and self.notifies(event, home):",
    ),
    Fault(
        "a client that unsubscribes stays at its rendezvous",
        _RENDEZVOUS,
        "self.send(target, DropSubscription(client, topic_filter))",
        "pass",
    ),
    Fault(
        "a repeat at a broadcast group hides an event from others",
        "geomq.routing.strategies.groups.broadcast_groups",
        "fresh = self.seen.unseen(event.id, matches) if matches else ()",
        "fresh = self.seen.unseen(event.id, matches) if matches and not repeated else ()",
    ),
    Fault(
        "a member of a share group is served twice",
        _SHARED,
        "elif not self.is_first(event.id, group, len(asked)):",
        "elif len(asked) and not self.is_first(event.id, group, len(asked)):",
    ),
    Fault(
        "share groups do not hear of members that moved",
        _SHARED,
        "self._change(Subscriber(peer, client), location, ready=ready)",
        "self._change(Subscriber(peer, client), None, ready=ready)",
    ),
    Fault(
        "peers that meet again do not exchange their members",
        _SHARED,
        "self._told.pop(peer, None)",
        "pass",
    ),
    # Plans and the fast path.
    Fault(
        "a plan sends nowhere",
        _RENDEZVOUS,
        "peers = [ToPeer(target, None) for target in targets if target != self.me]",
        "peers = list[ToPeer]()",
    ),
    Fault(
        "a plan leaves out own clients",
        _RENDEZVOUS,
        "return Plan(matched.get(self.me, ()), tuple(peers))",
        "return Plan((), tuple(peers))",
    ),
    Fault(
        "plans are kept although subscriptions changed",
        _FASTPATH,
        "if since != self._plans_since:",
        "if self._plans_since is None:",
    ),
    Fault(
        "short ways are kept when receivers change",
        _FASTPATH,
        "self._routes.clear()",
        "pass",
    ),
    Fault(
        "what comes on a short way is not noted as seen",
        _ARRIVALS,
        "arriving.history.run(entry.sequence + first, end - first, route.clients)",
        "pass",
    ),
    Fault(
        "only the first of a batch is sent to peers",
        "geomq.broker.fastpath.links",
        "Batched(client.id, client.location, first, count, connection.version == V5, matches, size)",
        "Batched(client.id, client.location, first, 1, connection.version == V5, matches, size)",
    ),
    # The node and its driver.
    Fault(
        "the node asks for nothing",
        _NODE,
        "self._handlers[type(event)](event, now)",
        "return self._handlers[type(event)](event, now) or []",
    ),
    Fault(
        "the node hands out one id twice",
        _NODE,
        "self._sequence += count",
        "self._sequence += count - 1",
    ),
    Fault(
        "a client that is gone stays in the routing",
        _NODE,
        "state = self.clients.pop(happened.client, None)",
        "state = self.clients.get(happened.client)",
    ),
    Fault(
        "the node's deadlines are not kept",
        _DRIVER,
        "self._timer = self._core.loop.call_at(deadline / 1000.0, self._due)",
        "pass",
    ),
    Fault(
        "an event overtakes what took the fast path before it",
        _DRIVER,
        "self.before_delivery()",
        "pass",
    ),
    # Editions.
    Fault(
        "what editions ask for is not sent",
        _EDITIONS,
        "self._act(SendToPeer(peer, message))",
        "pass",
    ),
    Fault(
        "nobody waits for the others in a change",
        _EDITIONS,
        "return reached is not None and reached.phase >= phase",
        "return True",
    ),
    Fault(
        "own events keep to the old routing",
        _EDITIONS,
        "routings.publishing = strategy",
        "pass",
    ),
    Fault(
        "a new routing is not introduced to the clients",
        _EDITIONS,
        "routings.introduce(strategy, now)",
        "pass",
    ),
    Fault(
        "promised messages do not wait for a peer to adopt the edition",
        _ROUTINGS,
        "elif action.peer in self.within.get(key, ()) or is_promised(action.message):",
        "elif action.peer in self.within.get(key, ()):",
    ),
    # Retained events.
    Fault(
        "brokers that meet again do not compare what they retain",
        _RETAINED,
        "if digest != self._versions.digest:",
        "if False:",
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
        _MOVES,
        "self._arrived[client] = _Arrival(dict.fromkeys(had), now)",
        "self._arrived[client] = _Arrival({}, now)",
    ),
    Fault(
        "events do not follow a client that left",
        _MOVES,
        "yield SendToPeer(broker, DeliverMoved(event, tuple(theirs), hops + 1))",
        "pass",
    ),
    Fault(
        "what is in flight moves under new packet ids",
        _TRANSFER,
        "PackedDelivery(d.message, d.qos, d.retain, d.identifiers, d.packet_id, d.phase is Phase.RELEASED)",
        "PackedDelivery(d.message, d.qos, d.retain, d.identifiers, 0, False)",
    ),
    Fault(
        "a session moves without its receipts",
        _TRANSFER,
        "tuple(receipts),",
        "(),",
    ),
    # The cloud.
    Fault(
        "events come from the cloud without their fences",
        _CLOUD,
        "fence = None if fence_said is None else self._fence_of(fence_said)",
        "fence = None",
    ),
    Fault(
        "events go to the cloud without their publisher's location",
        _CLOUD,
        "ours.append((EVENT_LOCATION_PROPERTY, location_text(event.location)))",
        "pass",
    ),
)
