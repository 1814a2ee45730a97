"""Back-pressure: what becomes of an event whose queue is full, and acknowledgements that wait until it has its place.

Where a full queue is to slow publishers down, an event goes beyond its end, and its publisher is answered once so much
before it has gone that it is within. So nothing that was acknowledged can be pushed out, and whoever keeps to the
number of messages that may be unanswered stops by itself. It goes on to ping, subscribe and receive; only of a client
of MQTT 3.1.1, which knows no such number, nothing more is read for so long. Publishers of other events notice nothing.

Nobody waits forever unless the settings say so: a queue that kept a publisher waiting for too long slows nobody down
any more until it has room again, and what does not fit is dropped and counted. Beyond twice its length a queue takes
nothing: the publisher is told that its event was not taken. Answers of one client keep their order.
"""

import logging
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from geomq.broker.config.queues import QueueFull
from geomq.broker.config.settings import Config
from geomq.broker.state.client import Client, ClientConnection
from geomq.broker.state.counts import Counts
from geomq.broker.storage.outbox import Outbox
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.topics import topic_matches
from geomq.mqtt.codec.types import V5
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.outbound import Outbound
from geomq.mqtt.session.session import Session

log = logging.getLogger("geomq.broker")

LOOK_S = 0.02
"""How often it is looked whether a full queue has room again for which somebody waits."""
EACH_LOOK_S = 0.000_02
"""So much for each full queue, if that is longer: looking takes a small part of the time, however many there are."""
IDLE_LOOK_S = 1.0
"""How often it is looked after queues for which nobody waits."""
LOG_PAUSE_S = 10.0
NO_ROOM = "no room in the queue of a receiver"


class Clock(Protocol):
    """The event loop, as far as it is needed here."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> TimerHandle: ...


class Queue(Protocol):
    """What may be full."""

    def fits(self, messages: int, size: int, /) -> bool:
        """Whether there is room, the last messages not counted: so many, of this size."""

    @property
    def overfull(self) -> bool:
        """Whether twice as much waits as there should."""


class _Answer:
    """What a publisher is told once its event has its place in every queue; `waits` says in how many it has none."""

    __slots__ = ("client", "connection", "packet_id", "qos", "reason", "text", "waits")

    def __init__(self, client: Client, packet_id: int, qos: int, reason: ReasonCode, text: str | None) -> None:
        self.client = client
        self.connection = client.connection
        self.packet_id = packet_id
        self.qos = qos
        self.reason = reason
        self.text = text
        self.waits = 0


class _Full:
    """A full queue: the answers to events beyond its end with their sizes and since when they wait, in order. It has
    `given_up` if publishers no longer wait for it."""

    __slots__ = ("answers", "bytes", "given_up", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: deque[tuple[_Answer, int, float]] = deque()
        self.bytes = 0
        self.given_up = False


class Pressure:
    """One per broker. `active` says that some queue is full and publishers may have to wait, so that every event of QoS
    1 or 2 has to take the normal path: `begin`, route, `answer`."""

    def __init__(
        self,
        config: Config,
        clients: Mapping[str, Client],
        counts: Counts,
        outbox: Outbox,
        clock: Clock,
    ) -> None:
        self.active = False
        self._config = config
        self._clients = clients
        self._counts = counts
        self._outbox = outbox
        self._clock = clock
        self._full: dict[Queue, _Full] = {}
        self._unanswered: dict[Client, deque[_Answer]] = {}
        self._stopped: dict[ClientConnection, None] = {}
        """Connections of which nothing is read until answers have gone."""
        self._reached: list[tuple[_Full, int]] | None = None
        """The queues beyond whose end the event in hand went, and its size there; None if nobody is to be answered."""
        self._refused = False
        """Whether some queue did not take it at all."""
        self._log_at = 0.0
        self._timer: TimerHandle | None = None

    def take_config(self, config: Config) -> None:
        self._config = config

    @property
    def full(self) -> int:
        """How many queues are full that slow publishers down, or have done so for too long."""
        return len(self._full)

    @property
    def waiting(self) -> int:
        """How many publishers wait for an answer."""
        return len(self._unanswered)

    # What becomes of an event.

    def begin(self) -> None:
        """An event is about to be routed whose publisher gets an answer."""
        self._reached, self._refused = [], False

    def end(self) -> None:
        """It was routed, and answered elsewhere."""
        self._reached = None

    def of_session(self, session: Session, queue: Outbound, message: ApplicationMessage, size: int) -> bool:
        """There is no room for a message in a session's queue: whether it is taken all the same."""
        client = self._clients.get(session.client_id)
        policy = self._policy(client, session, message.topic)
        if policy == "slow":
            return self._goes_beyond(queue, size, session.client_id)
        if policy == "drop_oldest":
            return session.make_room(
                queue, size, lambda each: self._policy(client, session, each.topic) == "drop_oldest"
            )
        if policy == "disconnect" and client is not None and client.connection is not None:
            self._disconnect(client.connection)
        return False

    def of_link(self, peer: str, queue: Queue, topic: str, size: int, *, promised: bool) -> QueueFull:
        """There is no room for an event in what waits for a peer: what is to become of it; `slow` takes it."""
        policy = self._policy_of_peers(topic, promised=promised)
        if policy != "slow":
            return policy
        return "slow" if promised and self._goes_beyond(queue, size, peer) else "drop_newest"

    def may_go(self, topic: str | None, *, promised: bool) -> bool:
        """Whether an event that waits for a peer may be given up for a newer one; its topic is None if it is several
        events, of topics that nobody has looked at."""
        if topic is None and self._config.topics:
            return not promised
        return not promised or self._policy_of_peers(topic or "", promised=True) == "drop_oldest"

    def _policy_of_peers(self, topic: str, *, promised: bool) -> QueueFull:
        return (self._of_topic(topic) if promised else None) or self._config.queues.full_for_peers

    def _of_topic(self, topic: str) -> QueueFull | None:
        rules = self._config.topics
        return next((rule.queue_full for rule in rules if topic_matches(rule.topic_filter, topic)), None)

    def _policy(self, client: Client | None, session: Session, topic: str) -> QueueFull:
        policy = self._of_topic(topic)
        if policy is not None:
            return policy
        queues = self._config.queues
        if session.expiry_s and any(fnmatchcase(session.client_id, pattern) for pattern in queues.durable):
            return "slow"
        return (None if client is None else client.queue_full) or queues.full

    def _goes_beyond(self, queue: Queue, size: int, name: str) -> bool:
        """Whether the event goes beyond the end of a full queue, and its publisher, if it has one, waits."""
        full = self._full.get(queue)
        if full is None:
            full = self._full[queue] = _Full(name)
            self.active = True
            self._log(name)
            self._look_in(IDLE_LOOK_S)
        if full.given_up:
            return False
        if queue.overfull:
            self._refused = self._reached is not None
            return False
        if self._reached is not None:
            self._reached.append((full, size))
        return True

    def _disconnect(self, connection: ClientConnection) -> None:
        """The client does not keep up: it is sent away, when all who get the event have it."""
        if not connection.closed:
            self._clock.call_soon(lambda: connection.dismiss(ReasonCode.QUOTA_EXCEEDED, "the queue is full"))

    # Answers.

    def answer(self, client: Client, packet_id: int, qos: int, reason: ReasonCode, text: str | None) -> None:
        """Tell the publisher what became of its event, as soon as it may know. It is disconnected if it has to be told
        that the event was not taken, and its version has no words for that."""
        reached, self._reached = self._reached or [], None
        refused, self._refused = self._refused, False
        if refused and reason < ReasonCode.UNSPECIFIED_ERROR:
            reached, reason, text = [], ReasonCode.QUOTA_EXCEEDED, NO_ROOM
            self._counts.events_refused += 1
            if client.session.version != V5:
                self._turn_away(client, packet_id, qos)
                return
        answer = _Answer(client, packet_id, qos, reason, text)
        unanswered = self._unanswered_of(client)
        if not unanswered and not reached:
            self._send(answer)
        else:
            self._wait(answer, unanswered, reached)

    def _turn_away(self, client: Client, packet_id: int, qos: int) -> None:
        """Its event was not taken: it has to come again."""
        client.session.answer(packet_id, qos, ReasonCode.QUOTA_EXCEEDED, NO_ROOM)
        if client.connection is not None:
            client.connection.dismiss(ReasonCode.QUOTA_EXCEEDED, NO_ROOM)

    def _unanswered_of(self, client: Client) -> deque[_Answer]:
        """What its connection has not been told yet; nobody asks for what was to go to one before."""
        unanswered = self._unanswered.get(client)
        if unanswered is None or unanswered[0].connection is not client.connection:
            return deque()
        return unanswered

    def _wait(self, answer: _Answer, unanswered: deque[_Answer], reached: list[tuple[_Full, int]]) -> None:
        """Answer when the event has its place, and what was published before is answered."""
        now = self._clock.time()
        for full, size in reached:
            full.answers.append((answer, size, now))
            full.bytes += size
        answer.waits = len(reached)
        unanswered.append(answer)
        self._unanswered[answer.client] = unanswered
        if reached:
            self._counts.events_slowed += 1
            self._look_in(self._look_s)
        connection = answer.connection
        if connection is not None and len(unanswered) >= self._unanswered_max(connection):
            self._stopped[connection] = None
            connection.stop_reading()

    def _unanswered_max(self, connection: ClientConnection) -> int:
        """With so many a client is read no further; one of MQTT 5 that keeps to what it was told never has so many."""
        return self._config.limits.receive_maximum + (connection.version == V5)

    def _send(self, answer: _Answer) -> None:
        """Unless the connection that the event came on is gone."""
        client, connection = answer.client, answer.connection
        if connection is not None and client.connection is connection:
            data = client.session.answer(answer.packet_id, answer.qos, answer.reason, answer.text)
            self._outbox.hold(connection, data)

    def _is_placed(self, answer: _Answer) -> None:
        """The event has its place in one more queue; what its publisher published before is answered before."""
        answer.waits -= 1
        client, unanswered = answer.client, self._unanswered.get(answer.client)
        while unanswered and not unanswered[0].waits:
            self._send(unanswered.popleft())
        if not unanswered:
            self._unanswered.pop(client, None)
        connection = answer.connection
        if connection in self._stopped and len(unanswered or ()) < self._unanswered_max(connection):
            del self._stopped[connection]
            self._clock.call_soon(connection.go_on)

    # Looking.

    def _look_in(self, seconds: float) -> None:
        """Look then, unless it is looked before."""
        at = self._clock.time() + seconds
        if self._timer is None or at < self._timer.when():
            self.stop()
            self._timer = self._clock.call_at(at, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Answer those whose events have their place now, and those that have waited for too long."""
        self._timer = None
        for queue, full in tuple(self._full.items()):
            while full.answers and queue.fits(len(full.answers), full.bytes):
                self._take_first(full)
            if self._is_too_long(full):
                full.given_up = True
                log.warning("publishers no longer wait for a full queue", extra={"receiver": full.name})
                while full.answers:
                    self._take_first(full)
            if not full.answers and queue.fits(0, 0):
                del self._full[queue]
        self.active = not all(full.given_up for full in self._full.values())
        if self._full:
            self._look_in(self._look_s if self._unanswered else IDLE_LOOK_S)

    @property
    def _look_s(self) -> float:
        return max(LOOK_S, EACH_LOOK_S * len(self._full))

    def _is_too_long(self, full: _Full) -> bool:
        longest = self._config.queues.slow_s_max
        return bool(longest and full.answers) and self._clock.time() - full.answers[0][2] >= longest

    def _take_first(self, full: _Full) -> None:
        answer, size, _ = full.answers.popleft()
        full.bytes -= size
        self._is_placed(answer)

    def _log(self, name: str) -> None:
        """Say now and then that publishers are slowed down."""
        now = self._clock.time()
        if now >= self._log_at:
            self._log_at = now + LOG_PAUSE_S
            advice = "see why the receiver does not take more, or raise the limit of its queue"
            log.warning("a queue is full, publishers wait", extra={"receiver": name, "advice": advice})
