"""Faults of one line in what a broker does for its clients: sessions, store, committer, fast paths, the cloud."""

from geomq.sim.planting import Fault

_PEER_STORE = "geomq.broker.peers.store"
_STORE = "geomq.broker.storage.store"
_COMMITTER = "geomq.broker.storage.committer"
_OUTBOX = "geomq.broker.storage.outbox"
_OUTBOUND = "geomq.mqtt.session.outbound"
_INBOUND = "geomq.mqtt.session.inbound"
_SESSION = "geomq.mqtt.session.session"
_REGISTRY = "geomq.broker.clients.registry"
_RENDEZVOUS = "geomq.routing.strategies.rendezvous"
_CLOUD = "geomq.broker.cloud.codec"
_FASTPATH = "geomq.broker.fastpath.publishing"
_ARRIVALS = "geomq.broker.fastpath.arrivals"

IN_BROKER: tuple[Fault, ...] = (
    # Disk.
    Fault(
        "clients are answered before the disk has synced",
        _COMMITTER,
        "if not self._unsynced or not self._store.durable:",
        "if self._unsynced or not self._store.durable:",
        seed=32,
    ),
    Fault(
        "clients are answered before anything is written",
        _OUTBOX,
        "self.held.append((connection, data))",
        "connection.send(data)",
        seed=2,
    ),
    Fault(
        "numbers of stored messages begin anew after a start",
        _STORE,
        "self._next_number = loaded.state.epoch << EPOCH_SHIFT",
        "self._next_number = 1",
        seed=3,
    ),
    Fault(
        "a message that others still wait for is deleted from disk",
        _STORE,
        "slot.references -= 1",
        "slot.references = 0",
        seed=2,
    ),
    Fault(
        "a subscription is not written to disk",
        "geomq.broker.clients.subscribing",
        "self._core.store.put_subscription(client.id, SubscriptionRecord(subscription, written))",
        "pass",
        seed=3,
    ),
    Fault(
        "what waits for a peer is not written to disk",
        _PEER_STORE,
        "self._write(OUTBOX + peer, key, data)",
        "pass",
        seed=65,
    ),
    Fault(
        "what a peer has not acknowledged is erased from disk",
        _PEER_STORE,
        "while waiting and waiting[0].last < number:",
        "while waiting and waiting[0].first <= number:",
        seed=65,
    ),
    Fault(
        "which events own clients had is not written to disk",
        _PEER_STORE,
        "self._store.put_note(SEEN, key, msgspec.msgpack.encode(delivered))",
        "pass",
        seed=118,
    ),
    Fault(
        "what peers placed here is not written to disk",
        _PEER_STORE,
        "self._carry_out(kind, placed.receive(message))",
        "placed.receive(message)",
        seed=3,
    ),
    # Sessions.
    Fault(
        "a resumed session does not repeat what is in flight",
        _OUTBOUND,
        "self._repeat = deque(self._flights.values()) if self._flights else None",
        "self._repeat = None",
        seed=78,
    ),
    Fault(
        "a delivery that is done stays in the journal",
        _OUTBOUND,
        "self._journal.append(DeliveryRemoved(self._client_id, delivery.number))",
        "pass",
        seed=65,
    ),
    Fault(
        "a received QoS 2 delivery is forgotten in a crash",
        _OUTBOUND,
        "self._journal.append(DeliveryReleased(self._client_id, delivery.number, packet_id))",
        "pass",
        seed=18,
    ),
    Fault(
        "an expired message is delivered",
        _OUTBOUND,
        "if delivery.message.expired(now):",
        "if delivery.message.expired(0.0):",
        seed=118,
    ),
    Fault(
        "a repeated QoS 2 publish counts as new",
        _INBOUND,
        "if packet_id in self.receipts:",
        "if packet_id in self.receipts and packet_id not in self.open:",
        seed=56,
    ),
    Fault(
        "the receipt of a QoS 2 publish is not journalled",
        _INBOUND,
        "self._journal.append(ReceiptAdded(self._client_id, packet_id))",
        "pass",
        seed=56,
    ),
    Fault(
        "a restarted session has forgotten its receipts",
        _REGISTRY,
        "session.restore(stored.deliveries, stored.receipts)",
        "session.restore(stored.deliveries, [])",
        seed=56,
    ),
    Fault(
        "a session never expires",
        _REGISTRY,
        "if expires_at is not None and expires_at <= now:",
        "if expires_at is not None and expires_at <= 0.0:",
        seed=18,
    ),
    Fault(
        "a client that says goodbye leaves its will",
        "geomq.mqtt.session.wills",
        "if farewell is not None and farewell.reason == ReasonCode.NORMAL_DISCONNECTION:",
        "if farewell is not None and farewell.reason != ReasonCode.NORMAL_DISCONNECTION:",
        seed=3,
    ),
    Fault(
        "a client that reads again stays paused",
        _SESSION,
        "self._outbound.stalled = False",
        "self._outbound.stalled = True",
        seed=3,
    ),
    Fault(
        "a QoS 2 event for which there is no room stays received",
        "geomq.broker.clients.publishing",
        "refusal = client.session.answer(packet.packet_id, packet.qos, reason, text)",
        "refusal = client.session.answer(packet.packet_id, packet.qos)",
        seed=18,
    ),
    # Plans and the fast path.
    Fault(
        "a plan sends nowhere",
        _RENDEZVOUS,
        "peers = [ToPeer(target, None) for target in targets if target != self.me]",
        "peers = list[ToPeer]()",
        seed=3,
    ),
    Fault(
        "a plan leaves out own clients",
        _RENDEZVOUS,
        "return Plan(matched.get(self.me, ()), tuple(peers))",
        "return Plan((), tuple(peers))",
        seed=3,
    ),
    Fault(
        "plans are kept although subscriptions changed",
        _FASTPATH,
        "if since != self._plans_since:",
        "if self._plans_since is None:",
        seed=6,
    ),
    Fault(
        "short ways are kept when receivers change",
        _FASTPATH,
        "self._routes.clear()",
        "pass",
        seed=32,
    ),
    Fault(
        "what comes on a short way is not noted as seen",
        _ARRIVALS,
        "arriving.history.run(entry.sequence + first, end - first, route.clients)",
        "pass",
        seed=2,
    ),
    Fault(
        "only the first of a batch is sent to peers",
        "geomq.broker.fastpath.links",
        "Batched(client.id, client.location, first, count, connection.version == V5, matches, size)",
        "Batched(client.id, client.location, first, 1, connection.version == V5, matches, size)",
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
