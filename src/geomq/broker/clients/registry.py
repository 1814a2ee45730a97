"""The clients of a broker through their lives: sessions begin, are taken over, resumed, left, and end.

Also their wills, and the deadlines of both. Everything that must survive is written to the store here.
"""

import heapq
import logging
import math
from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import structs

from geomq.broker.clients.geotopics import read_filter
from geomq.broker.clients.passing_on import PassingOn
from geomq.broker.clients.publishing import EventRefused, Publishing
from geomq.broker.clients.subscribing import Subscribing
from geomq.broker.core import Core
from geomq.broker.driver import Driver
from geomq.broker.security.identity import Identity
from geomq.broker.security.limits import make_bucket
from geomq.broker.state.client import Client, ClientConnection
from geomq.broker.storage.records import SessionRecord, StoredSession
from geomq.errors import GeomqError
from geomq.geo import Location
from geomq.mqtt.codec.packets import Connect, Disconnect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import NEVER_EXPIRES
from geomq.mqtt.session.changes import (
    Change,
    DeliveryAdded,
    DeliveryReleased,
    EventsMissed,
    Journal,
    ReceiptAdded,
)
from geomq.mqtt.session.handshake import Agreement, expiry_after
from geomq.mqtt.session.outbound import Phase
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.wills import DueWill, due_will
from geomq.routing.core.events import ClientMoved, ClientReady
from geomq.vocabulary import DETAILS_PROPERTY, ROAM_PROPERTY, STAY_PROPERTY

log = logging.getLogger("geomq.broker")

JOURNEY_S = 30.0
"""How long the will of a client that was sent to another broker waits at least."""
PLACES_WRITTEN_MAX = 500
"""Places written down in one sweep at most; the rest wait for the next, so that many moves never hold up events."""


class Registry:
    """Begins and ends sessions."""

    def __init__(self, core: Core, driver: Driver, publishing: Publishing, subscribing: Subscribing) -> None:
        self._core = core
        self._handle = driver.handle
        self._publishing = publishing
        self._subscribing = subscribing
        self._passing_on = PassingOn(core, driver)
        self._deadlines: list[tuple[float, str]] = []
        self._is_ending = False

    # Coming.

    def open(
        self, connection: ClientConnection, connect: Connect, agreement: Agreement, identity: Identity
    ) -> tuple[Client, bool, list[bytes]]:
        """A client is let in: its record, whether its session was there, and what goes out after CONNACK."""
        core, user = self._core, identity.user
        client_id = agreement.client_id
        client = core.clients.get(client_id)
        if client is not None and client.connection is not None:
            self.take_over(client)
            client = core.clients.get(client_id)
        present = client is not None
        listener, mount = connection.listener, connection.listener.mount_point or ""
        # What a session of another mount point holds is not for this one.
        if client is not None and (connect.clean_start or client.session.mount != mount):
            self.end(client)
            client, present = None, False
        if client is None:
            journal = core.outbox.journal if core.outbox.durable and agreement.expiry_s else None
            session = self._make_session(client_id, journal)
            rights = core.security.rights(user, client_id, listener)
            client = core.clients[client_id] = Client(session, user, rights)
        elif not agreement.expiry_s and client.session.durable:
            client.session.forget_journal()
            self._forget_stored(client)
        client.session.renew(core.policy_at(listener), mount=mount)
        client.attach(connection, user, proved=identity.proved, now_ms=int(core.wall_s() * 1000))
        self.give_rights(client)
        asks = bool(core.config.geo.details) and connect.properties.user(DETAILS_PROPERTY) is not None
        client.agree(roams=roams(connect), asks=asks, told_new=not present, bridges=connect.bridge)
        if core.tracer is not None:
            core.tracer.connected(client)
        resumed = client.session.attach(agreement, connect.will, core.now_s())
        self._limit(client)
        self._remember(client)
        self._tell_ready(client, True)
        core.topology_changed()
        return client, present, resumed

    def _make_session(self, client_id: str, journal: Journal | None) -> Session:
        core = self._core
        return Session(
            client_id,
            core.policy_at(None),
            journal,
            tally=core.counts,
            on_drop=core.drops.of_session,
            on_full=core.pressure.of_session,
            backlog=core.backlog,
        )

    def give_rights(self, client: Client) -> None:
        """The client has the rights of its user as they are now, also to what already waits for it."""
        core = self._core
        rights = core.security.rights(client.user, client.id, client.listener)
        client.authorize(rights)
        if not rights.all_allowed and client.session.pending:
            denied = client.session.withdraw(
                lambda message: not rights.may_read(message.topic), "not authorized to read"
            )
            core.counts.deliveries_denied += denied
            core.outbox.schedule()

    def take_over(self, client: Client) -> None:
        """The client connects once more, here or at another broker."""
        connection = client.connection
        assert connection is not None
        self.leave(client, None)
        connection.dismiss(ReasonCode.SESSION_TAKEN_OVER)

    def _limit(self, client: Client) -> None:
        limits, now = self._core.config.limits, self._core.loop.time()
        client.limit(
            make_bucket(limits.publish_rate_per_s, limits.publish_burst, now=now),
            make_bucket(limits.location_rate_per_s, limits.location_burst, now=now),
        )

    def _tell_ready(self, client: Client, ready: bool) -> None:
        """Share groups prefer members that are there."""
        for prefix in client.prefixes or ():
            self._handle(ClientReady(client.subscription_key(prefix), ready))

    # Going.

    def leave(self, client: Client, farewell: Disconnect | None) -> None:
        """The client's connection is gone, after `farewell` or without a word."""
        core = self._core
        now = core.now_s()
        session = client.session
        will = session.will
        expiry_s = expiry_after(farewell, session.expiry_s, core.policy_at(client.listener))
        session.detach(expiry_s, now)
        client.detach(due_will(will, farewell, session_expires_at=session.expires_at, now=now))
        core.topology_changed()
        if not expiry_s:
            self.end(client)
            return
        if core.tracer is not None:
            core.tracer.disconnected(client)
        if client.due_will is not None and client.due_will.due_at <= now:
            self._publish_will(client)
        self._tell_ready(client, False)
        self._remember(client)
        self._expect(client)

    def send_away(self, client: Client, address: str) -> None:
        """Tell a client to go to another broker; its will waits for it to arrive there."""
        connection, will = client.connection, client.session.take_will()
        assert connection is not None
        connection.dismiss(ReasonCode.USE_ANOTHER_SERVER, "another broker serves this location", go_to=address)
        if will is not None and client.id in self._core.clients:
            delay_s = max(JOURNEY_S, will.properties.will_delay_interval or 0)
            due_at = min(self._core.now_s() + delay_s, client.session.expires_at or math.inf)
            client.keep_will(DueWill(will, due_at))
            self._remember(client)
            self._expect(client)

    def end(self, client: Client) -> None:
        """The session is over: nothing of it remains but its will."""
        if client.due_will is not None:
            self._publish_will(client)
        self._subscribing.forget(client)
        self._core.drops.ended(client.session, self._passing_on.pass_on(client.session))
        self.give_away(client)

    def give_away(self, client: Client) -> None:
        """The session is no longer this broker's; its state in the routing is handled elsewhere."""
        core = self._core
        self._subscribing.lose(client)
        client.session.close()
        if core.clients.get(client.id) is client:
            del core.clients[client.id]
        if client.session.durable:
            self._forget_stored(client)
        core.topology_changed()

    def _forget_stored(self, client: Client) -> None:
        self._core.store.delete_session(client.id)
        self._core.outbox.forget(client.id)

    def _publish_will(self, client: Client) -> None:
        due = client.take_will()
        assert due is not None
        self._core.counts.wills_published += 1
        try:
            self._publishing.publish(client, due.message(self._core.now_s()))
        except EventRefused as refused:
            log.info("will of %s refused: %s", client.id, refused)

    # Deadlines.

    def _expect(self, client: Client) -> None:
        clients = self._core.clients
        for moment in _moments(client):
            heapq.heappush(self._deadlines, (moment, client.id))
        if len(self._deadlines) > 4 * len(clients) + 64:
            # Clients that come and go leave a deadline each time.
            away = [each for each in clients.values() if each.connection is None]
            self._deadlines = [(moment, each.id) for each in away for moment in _moments(each)]
            heapq.heapify(self._deadlines)

    def sweep(self) -> None:
        """Publish wills and end sessions whose time has come; write down where clients went."""
        self._remember_moved()
        if not self._is_ending:
            self._core.turns.begin()
            self._end_due()

    def _end_due(self) -> None:
        """Of many that are due at once some have to wait until others had their turn."""
        now, turns = self._core.now_s(), self._core.turns
        self._is_ending = False
        while self._deadlines and self._deadlines[0][0] <= now:
            self._look_at(self._core.clients.get(heapq.heappop(self._deadlines)[1]), now)
            if turns.over():
                self._is_ending = True
                turns.wait(self._end_due)
                return

    def _look_at(self, client: Client | None, now: float) -> None:
        if client is None or client.connection is not None:
            return
        expires_at = client.session.expires_at
        if expires_at is not None and expires_at <= now:
            self._core.counts.expired_sessions += 1
            self.end(client)
        elif client.due_will is not None and client.due_will.due_at <= now:
            self._publish_will(client)
            self._remember(client)

    # Surviving.

    def note_coming(self, client: Client, then: Callable[[], None]) -> bool:
        """A client is about to come back: have on disk that its session no longer runs out, then call back. False if
        that need not be waited for."""
        session = client.session
        if client.connection is not None or not session.durable or session.expires_at is None:
            return False
        self._core.store.put_session(client.id, structs.replace(_record(client), expires_at=None))
        self._core.outbox.when_safe(then)
        return True

    def note_not_coming(self, client: Client) -> None:
        """It did not come after all."""
        self._remember(client)

    def _remember(self, client: Client) -> None:
        if client.session.durable:
            self._core.store.put_session(client.id, _record(client))
            self._core.outbox.schedule()

    def _remember_moved(self) -> None:
        moved, clients = self._core.moved, self._core.clients
        for client_id in tuple(islice(moved, PLACES_WRITTEN_MAX)):
            client = moved.pop(client_id)
            if clients.get(client_id) is client:
                self._remember(client)

    def load(self, sessions: dict[str, StoredSession]) -> None:
        """Take in what the store remembered; clients that were connected then have lost their connection."""
        now = self._core.now_s()
        for client_id, stored in sessions.items():
            client, record = self._load_one(client_id, stored, now), stored.record
            if client.session.expires_at != record.expires_at or (client.due_will and record.will_due_at is None):
                self._remember(client)  # or the next restart would count its time from the beginning

    def take_in(self, client_id: str, stored: StoredSession) -> None:
        """A session comes from another broker: it lives here from now on, in memory and on disk."""
        core = self._core
        client = self._load_one(client_id, stored, core.now_s())
        client.cross()
        if client.session.durable:
            self._store_wishes(client, stored)
            core.outbox.journal.extend(_changes_of(client_id, stored))
        self._remember(client)
        core.topology_changed()

    def complete(self, client: Client, stored: StoredSession) -> None:
        """A session began empty, and its client may believe that it goes on: it gets what the former one wanted, if
        that is of the same mount point."""
        if stored.record.mount != client.session.mount:
            return
        self._take_wishes(client, stored)
        client.cross()
        if client.session.durable:
            self._store_wishes(client, stored)
            self._remember(client)
        self._core.topology_changed()

    def go_on(self, client: Client, stored: StoredSession) -> None:
        """A session began, and its client does not know it: it is the former one, with all its identifiers."""
        core = self._core
        self.complete(client, stored)
        client.session.restore(stored.deliveries, stored.receipts)
        client.session.miss(stored.missed)
        if client.session.durable:
            core.outbox.journal.extend(_changes_of(client.id, stored))
            core.outbox.schedule()
        if client.connection is not None:
            for data in client.session.pump(core.now_s()):
                core.outbox.hold(client.connection, data)

    def _store_wishes(self, client: Client, stored: StoredSession) -> None:
        for name, text in stored.fences.items():
            self._core.store.put_fence(client.id, name, text)
        for subscribed in stored.subscriptions.values():
            self._core.store.put_subscription(client.id, subscribed)

    def _load_one(self, client_id: str, stored: StoredSession, now: float) -> Client:
        core, record = self._core, stored.record
        journal = core.outbox.journal if core.outbox.durable else None
        session = self._make_session(client_id, journal)
        expires_at = record.expires_at
        if expires_at is None and record.expiry_s != NEVER_EXPIRES:
            expires_at = now + record.expiry_s
        session.leave(record.version, record.expiry_s, expires_at, mount=record.mount)
        session.restore(stored.deliveries, stored.receipts)
        session.miss(stored.missed)
        listener = core.security.listener_at(record.place)
        rights = core.security.rights(record.user, client_id, listener)
        client = Client(session, record.user, rights, asks=record.asks)
        client.came_by(listener, record.queue_full, proved=record.proved)
        core.clients[client_id] = client
        if core.tracer is not None:
            core.tracer.watch(client)
            core.tracer.disconnected(client)
        self._take_wishes(client, stored)
        if record.will is not None:
            due_at = record.will_due_at
            if due_at is None:
                due_at = now + (record.will.properties.will_delay_interval or 0)
            client.due_will = DueWill(record.will, due_at)
        self._tell_ready(client, False)
        self._expect(client)
        return client

    def _take_wishes(self, client: Client, stored: StoredSession) -> None:
        """Where the client is, its fences and its subscriptions, as they were stored."""
        place = stored.record.location
        if place is not None and client.location is None:
            client.move(Location(*place))
            self._handle(ClientMoved(client.id, client.location))
        for name, text in stored.fences.items():
            try:
                client.define_fence(name, self._core.fence_texts.written(text))
            except GeomqError as error:
                log.warning("a stored fence of %s is no longer valid: %s", client.id, error)
        for subscribed in stored.subscriptions.values():
            try:
                fence = None if subscribed.fence is None else self._core.fence_texts.written(subscribed.fence)
                reading = read_filter(subscribed.subscription.topic_filter)
            except GeomqError as error:
                log.warning("a stored subscription of %s is no longer valid: %s", client.id, error)
                continue
            self._subscribing.take(client, subscribed.subscription, reading, fence)


def _record(client: Client) -> SessionRecord:
    session, due = client.session, client.due_will
    return SessionRecord(
        user=client.user,
        version=session.version,
        expiry_s=session.expiry_s,
        expires_at=session.expires_at,
        location=client.location,
        will=session.will if due is None else due.will,
        will_due_at=None if due is None else due.due_at,
        asks=client.asks,
        queue_full=client.queue_full,
        place=client.place,
        mount=session.mount,
        proved=client.proved,
    )


def _moments(client: Client) -> list[float]:
    """When something is due for a client that is away."""
    moments = (client.session.expires_at, None if client.due_will is None else client.due_will.due_at)
    return [moment for moment in moments if moment is not None]


def roams(connect: Connect) -> bool | None:
    """Whether a client asked to be sent to the right broker (True), or to stay (False)."""
    if connect.properties.user(STAY_PROPERTY) is not None:
        return False
    return True if connect.properties.user(ROAM_PROPERTY) is not None else None


def _changes_of(client_id: str, stored: StoredSession) -> Iterator[Change]:
    """What the journal of a session would have said to bring it to this point."""
    for each in stored.deliveries:
        yield DeliveryAdded(
            client_id, each.number, each.message, each.qos, each.retain, each.identifiers, each.packet_id
        )
        if each.phase is Phase.RELEASED:
            yield DeliveryReleased(client_id, each.number, each.packet_id)
    for packet_id in stored.receipts:
        yield ReceiptAdded(client_id, packet_id)
    if stored.missed:
        yield EventsMissed(client_id, stored.missed)
