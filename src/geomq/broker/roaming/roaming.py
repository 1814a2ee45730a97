"""Sessions follow their clients from broker to broker.

A session lives at one broker. When a client connects at another, that broker asks all others for the session, and the
one that has it hands it over: on the giver's disk until the taker has it on its own. So it does not matter why a
client comes: because it was sent, because it moved, or because its broker is gone for it.
"""

import logging

import msgspec

from geomq.broker.clients.geotopics import read_filter
from geomq.broker.clients.registry import Registry
from geomq.broker.connections.connection import Connection
from geomq.broker.core import Core
from geomq.broker.roaming.handovers import HandOvers, Notes
from geomq.broker.roaming.redirecting import Redirecting
from geomq.broker.roaming.searches import Search, Then, Trouble, Unasked, Visit
from geomq.broker.roaming.session_transfer import PARTS_MAX, Ghost, ghost_of, pack, read_ghost, voices_of
from geomq.broker.security.identity import client_id_refusal
from geomq.broker.state.client import Client
from geomq.broker.storage.records import StoredSession
from geomq.geo import Fence, Location
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.handshake import Agreement
from geomq.mqtt.session.outbound import Phase
from geomq.routing.core.events import ClientArrived, ClientDeparted, ClientMoved, ClientSubscribed
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.sessions.moves import ClientAddress, HandOver, NoSession, SessionWanted

log = logging.getLogger("geomq.roaming")

DEPARTED, HAD = "departed", "had"
VISITS_MAX = 10_000


_had = msgspec.msgpack.Decoder(tuple[EventId, ...]).decode


class Roaming:
    """One broker's side of all of it."""

    def __init__(self, core: Core, registry: Registry) -> None:
        self.my_address: str | None = None
        self._core = core
        self._registry = registry
        self._me = core.node.me
        self._up: dict[BrokerId, None] = {}
        self.redirecting = Redirecting(core, registry, self._up)
        self._started = core.loop.time()
        self._down_since: dict[BrokerId, float] = {}
        self._visits: dict[str, Visit] = {}
        self._let_in: dict[str, Search] = {}
        """Clients that did not wait for everybody, until everybody has answered."""
        self._unasked = Unasked()
        self._handovers = HandOvers(core.store, core.outbox, core.platform.random_bytes)
        self._departed: dict[str, None] = {}
        self._settling: dict[str, None] = {}

    def load(self, notes: Notes) -> None:
        """Take in what the store remembered; sessions and what peers placed here are there already."""
        node, now = self._core.node, self._core.now_ms()
        for key, value in notes.get(DEPARTED, {}).items():
            client_id = key.decode("utf-8", "surrogatepass")
            if client_id not in self._core.clients:
                self._departed[client_id] = None
                self._haunt(client_id, read_ghost(value), now)
        for key, value in notes.get(HAD, {}).items():
            client = self._core.clients.get(key.decode("utf-8", "surrogatepass"))
            if client is not None:
                self._settling[client.id] = None
                had = (*_had(value), *node.had_by(client.spoken()))
                for voice in client.spoken():
                    node.handle(ClientArrived(voice, had), now=now)
        self._handovers.load(notes)

    def _haunt(self, client_id: str, ghost: Ghost, now: float) -> None:
        """Put back what routing knew of a client that left; nothing of that is news to other brokers."""
        node, location = self._core.node, None if ghost.location is None else Location(*ghost.location)
        for voice, topic_filter, text, share in ghost.subscriptions:
            fence = None if text is None else self._core.fence_texts.written(text)
            node.handle(ClientMoved(ClientId(voice), location), now=now)
            node.handle(ClientSubscribed(ClientId(voice), topic_filter, fence, share), now=now)
        for voice in dict.fromkeys((client_id, *(voice for voice, *_ in ghost.subscriptions))):
            node.handle(ClientDeparted(ClientId(voice), BrokerId(ghost.to)), now=now)

    # A client comes.

    def fetch(
        self,
        connection: Connection,
        connect: Connect,
        agreement: Agreement,
        user: str | None,
        then: Then,
    ) -> None:
        """Find the client's session wherever it is, then go on."""
        core, client_id = self._core, agreement.client_id
        known, clean = client_id in core.clients, connect.clean_start
        if agreement.assigned or (known and not clean):
            self._come_in(client_id, then)
            return
        wanted = self._want(client_id, user, int(core.wall_s() * 1000), clean=clean, live=True)
        if known:
            for peer in core.node.strategy.federation.ids:
                if peer != self._me and peer not in self._up:
                    self._unasked.add(peer, wanted)
            self._come_in(client_id, then)
            return
        before = self._visits.pop(client_id, None)
        if before is not None:
            self._cancel(before)
        if len(self._visits) >= VISITS_MAX:
            then(Trouble(ReasonCode.SERVER_BUSY, "too many clients are waiting for their sessions"))
            return
        visit = self._visits[client_id] = Visit(wanted, connection, then)
        wait_s = core.config.federation.session_wait_s
        for peer in core.node.strategy.federation.ids:
            if peer == self._me:
                continue
            if peer in self._up:
                core.driver.tell_peer(peer, wanted)
                visit.waiting[peer] = None
            elif core.loop.time() - self._down_since.get(peer, self._started) < wait_s:
                visit.waiting[peer] = None
            else:
                self._unasked.add(peer, wanted)
                visit.is_unsure = True
        if clean and core.config.auth.client_id == "any":
            self._go_without(visit)  # nobody can keep it out, and it wants nothing
            return
        if not visit.waiting or not wait_s:
            self._give_up(visit)
            return
        connection.opened_at = core.loop.time() + wait_s
        visit.timer = core.loop.call_later(wait_s, self._give_up, visit)

    def _want(self, client_id: str, user: str | None, since_ms: int, *, clean: bool, live: bool) -> SessionWanted:
        token = self._handovers.make_token(client_id)
        return SessionWanted(ClientId(client_id), token, user, clean, live, since_ms)

    def _cancel(self, visit: Visit) -> None:
        """The same client comes once more before it was let in."""
        if visit.timer is not None:
            visit.timer.cancel()
        visit.connection.dismiss(ReasonCode.SERVER_BUSY, "the client connected again")
        if visit.successor is not None:
            self._wanted(*visit.successor)

    def _give_up(self, visit: Visit) -> None:
        """Not everybody answered in time: the client comes in without, and gets later what is found; or not at all."""
        is_missing = (visit.waiting or visit.is_unsure) and not visit.wanted.clean
        if is_missing and self._core.config.federation.session_missing == "refuse":
            text = "a broker that may have the session does not answer; try again"
            self._resolve(visit, Trouble(ReasonCode.SERVER_UNAVAILABLE, text))
            return
        self._go_without(visit)

    def _go_without(self, visit: Visit) -> None:
        """Let a client in without waiting any longer for those that have not answered."""
        wanted, waiting = visit.wanted, visit.waiting
        for peer in [peer for peer in waiting if peer not in self._up]:
            del waiting[peer]
            self._unasked.add(peer, wanted)
        self._let_in.pop(wanted.client, None)
        if waiting:
            self._let_in[wanted.client] = Search(wanted, waiting)
        if len(self._let_in) > VISITS_MAX:
            oldest = self._let_in.pop(next(iter(self._let_in)))
            for peer in oldest.waiting:
                self._unasked.add(peer, oldest.wanted)
        self._resolve(visit)

    def _resolve(self, visit: Visit, refusal: Trouble | None = None) -> None:
        client_id = visit.wanted.client
        if self._visits.get(client_id) is visit:
            del self._visits[client_id]
        if visit.timer is not None:
            visit.timer.cancel()
        if not visit.connection.closed:
            if refusal is None:
                self._forget_departure(client_id)
                self._come_in(client_id, visit.then, visit.wanted.since_ms)
            else:
                visit.then(refusal)
        if visit.successor is not None:
            self._wanted(*visit.successor)

    def _come_in(self, client_id: str, then: Then, since_ms: int | None = None) -> None:
        """Let a client in; its session may know it to be outside the area."""
        then(None)
        client = self._core.clients.get(client_id)
        if client is not None:
            client.since_ms = client.since_ms if since_ms is None else since_ms
            self.redirecting.look_at(client)

    # What peers say.

    def announce(self, address: str | None) -> None:
        """Clients reach this broker here."""
        self.my_address = address
        for peer in self._up if address is not None else ():
            self._core.driver.tell_peer(peer, ClientAddress(address or ""))

    def peer_up(self, peer: BrokerId) -> None:
        self._up[peer] = None
        if self.my_address is not None:
            self._core.driver.tell_peer(peer, ClientAddress(self.my_address))
        for search in self._let_in.values():
            if peer in search.waiting:
                self._unasked.add(peer, search.wanted)
        unasked = self._unasked.pop(peer)
        for client_id, visit in self._visits.items():
            if unasked.pop(client_id, None) is not None:
                visit.waiting[peer] = None
            if peer in visit.waiting:
                self._core.driver.tell_peer(peer, visit.wanted)
        for client_id, wanted in unasked.items():
            if wanted.clean or client_id in self._core.clients:
                self._core.driver.tell_peer(peer, wanted)

    def peer_down(self, peer: BrokerId) -> None:
        self._up.pop(peer, None)
        self._down_since[peer] = self._core.loop.time()

    def heard(self, peer: BrokerId, message: Message) -> bool:
        """Deal with a message of a peer; False if it is none of ours."""
        match message:
            case ClientAddress(address=address):
                self.redirecting.learn(peer, address)
            case SessionWanted():
                self._wanted(peer, message)
            case NoSession(client=client, token=token):
                self._no_session(peer, client, token, refused=message.refused)
            case HandOver():
                self._handed(peer, message)
            case _:
                return False
        return True

    def _no_session(self, peer: BrokerId, client_id: str, token: int, *, refused: bool) -> None:
        search, visit = self._let_in.get(client_id), self._visits.get(client_id)
        if search is not None and search.wanted.token == token:
            search.waiting.pop(peer, None)
            if not search.waiting:
                del self._let_in[client_id]
        if visit is None or visit.wanted.token != token:
            return
        visit.waiting.pop(peer, None)
        if refused:
            text = "the client id belongs to another user's session"
            self._resolve(visit, Trouble(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, text))
        elif not visit.waiting:
            self._give_up(visit)

    # Giving.

    def _wanted(self, peer: BrokerId, wanted: SessionWanted) -> None:
        """A client of this id is at a peer: give it the session, if there is one and it is that client's."""
        core, client_id = self._core, wanted.client
        visit = self._visits.get(client_id)
        if visit is not None and wanted.live and visit.successor is None and visit.is_before(peer, wanted, self._me):
            # The client is at two brokers at once. The one it came to later keeps it; we answer when we know.
            visit.successor = (peer, wanted)
            visit.connection.dismiss(ReasonCode.SERVER_BUSY, "the client connected again")
            return
        client = core.clients.get(client_id)
        if client is None or self._stays(client, peer, wanted):
            core.driver.tell_peer(peer, NoSession(client_id, wanted.token))
            if client is not None and not wanted.live:
                # The two were out of touch, and the peer may have an earlier session of the client.
                since_ms = client.since_ms
                core.driver.tell_peer(peer, self._want(client_id, client.user, since_ms, clean=False, live=False))
            return
        auth = core.config.auth
        if client_id_refusal(auth, client_id=client_id, user=wanted.user, owner=client.user, exists=True) is not None:
            core.driver.tell_peer(peer, NoSession(client_id, wanted.token, refused=True))
            return
        if client.connection is not None:
            self._registry.take_over(client)
        if core.clients.get(client_id) is client and not wanted.clean:
            self._give(peer, client, wanted.token)
            return
        if core.clients.get(client_id) is client:
            self._registry.end(client)
        core.driver.tell_peer(peer, NoSession(client_id, wanted.token))

    def _stays(self, client: Client, peer: BrokerId, wanted: SessionWanted) -> bool:
        """Whether a client came here later than to a peer that asks for its session."""
        if not wanted.live:
            return (client.since_ms, self._me) > (wanted.since_ms, peer)
        search = self._let_in.get(client.id)
        return search is not None and not search.is_before(peer, wanted, self._me)

    def _give(self, peer: BrokerId, client: Client, token: int) -> None:
        """From here on the session is the peer's; this broker only sends on what still comes for it."""
        core = self._core
        voices = client.spoken()
        subscribed = [(whole, self._fence_of(client, whole)) for whole in client.session.subscriptions]
        parts = pack(client, subscribed, core.node.had_by(voices))
        if len(parts) > PARTS_MAX:
            log.warning("the session of %s is too large to hand over", client.id)
            core.driver.tell_peer(peer, NoSession(client.id, token))
            return
        for number, data in enumerate(parts):
            core.driver.tell_peer(peer, HandOver(client.id, token, number, len(parts), data))
        client.due_will = None
        self._registry.give_away(client)
        self._settling.pop(client.id, None)
        self._departed[client.id] = None
        core.store.put_note(DEPARTED, _key(client.id), ghost_of(client, subscribed, peer))
        core.store.delete_note(HAD, _key(client.id))
        core.outbox.schedule()
        for voice in voices:
            core.driver.handle(ClientDeparted(voice, peer))
        core.counts.sessions_given += 1

    def _fence_of(self, client: Client, whole: str) -> Fence | None:
        reading = read_filter(whole)
        return self._core.node.fence_of(client.voice(reading.prefix), reading.plain, reading.group)

    def _forget_departure(self, client_id: str) -> None:
        if client_id in self._departed:
            del self._departed[client_id]
            self._core.store.delete_note(DEPARTED, _key(client_id))
            self._core.outbox.schedule()

    # Taking.

    def _handed(self, peer: BrokerId, message: HandOver) -> None:
        """A part of a session; with the last one it is ours."""
        found = self._handovers.take(peer, message)
        if found is not None:
            self._take(message.client, *found)

    def _take(self, client_id: str, stored: StoredSession, had: tuple[EventId, ...]) -> None:
        core = self._core
        self._forget_departure(client_id)
        known = core.clients.get(client_id)
        had_here = frozenset(() if known is None else core.node.had_by(known.spoken()))
        for voice in voices_of(client_id, stored):
            core.driver.handle(ClientArrived(voice, had))
        if known is None:
            self._registry.take_in(client_id, stored)
        else:
            stored.deliveries = [each for each in stored.deliveries if each.message.event_id not in had_here]
            self._withhold(known, stored)
            self._merge(known, stored)
        self._settling[client_id] = None
        core.store.put_note(HAD, _key(client_id), msgspec.msgpack.encode(had))
        core.outbox.schedule()
        core.counts.sessions_taken += 1
        visit = self._visits.get(client_id)
        if visit is not None:
            self._resolve(visit)

    def _withhold(self, client: Client, stored: StoredSession) -> None:
        """Leave out what the client has no right to read."""
        allowed = [each for each in stored.deliveries if client.rights.may_read(each.message.topic)]
        self._core.counts.deliveries_denied += len(stored.deliveries) - len(allowed)
        stored.deliveries = allowed

    def _merge(self, client: Client, stored: StoredSession) -> None:
        """The client did not wait for its session and has a new one: it gets what it has not had.

        What was sent but not answered it may have had: that is sent as once more.
        """
        core = self._core
        for each in stored.deliveries:
            if each.phase is not Phase.RELEASED:
                for data in client.session.requeue(each, core.wall_s()):
                    if client.connection is not None:
                        core.outbox.hold(client.connection, data)
        core.outbox.schedule()

    # The clock.

    def sweep(self) -> None:
        """Now and then: send away who has been outside for long enough, forget what is settled."""
        core = self._core
        self.redirecting.sweep()
        travellers = core.node.travellers
        for client_id in [each for each in self._departed if not travellers.has_left(ClientId(each))]:
            self._forget_departure(client_id)
        for client_id in [each for each in self._settling if not travellers.is_settling(ClientId(each))]:
            del self._settling[client_id]
            core.store.delete_note(HAD, _key(client_id))
            core.outbox.schedule()


def _key(client_id: str) -> bytes:
    return client_id.encode("utf-8", "surrogatepass")
