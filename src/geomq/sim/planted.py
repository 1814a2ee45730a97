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
)
