"""What a broker and its cloud send each other: messages of the strategy on one side, an MQTT session on the other.

Messages of the strategy go in with `send`, events of the MQTT session with `receive`. Requests go out in the order they
were made. Events wait while the cloud is away; everything else is sent again by the strategy when it is back. A session
the cloud still has is resumed, also after a restart if there is a store.

Topics and filters that begin with `$` are each broker's own affair and never go to the cloud.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from geomq.broker.cloud.codec import (
    CloudReader,
    fetch_identifier,
    live_identifier,
    publish_of_announcement,
    publish_of_event,
)
from geomq.broker.cloud.kept import UNCERTAIN, NothingKept, OpenEvents
from geomq.broker.state.drops import Reason
from geomq.errors import ProtocolError
from geomq.mqtt.client.events import QUEUE_FULL, Acknowledged, Answered, Connected, Dropped, Event, Request
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeRequest, Unsubscribe
from geomq.mqtt.codec.properties import Properties
from geomq.routing.core import model
from geomq.routing.core.messages import Message
from geomq.routing.strategies.groups.messages import (
    CloudAnnounce,
    CloudPing,
    CloudPong,
    CloudPublish,
    CloudSubscribe,
    CloudUnsubscribe,
)

WINDOW_MAX: Final = 1024
"""QoS 1 and 2 publishes on their way to the cloud, if it allows as many."""
IDS: Final = 2 * WINDOW_MAX
"""Packet identifiers: as few as are needed, because a broker that starts again does not know which of them the cloud
still has open, and ends the exchanges of all of them."""
PING_S: Final = 3.0
ANSWER_S: Final = 7.0


class CloudSession:
    """Everything that outlives a connection to the cloud. `mqtt` is the session, for whoever owns the connection."""

    def __init__(
        self,
        reader: CloudReader,
        *,
        connect: Connect,
        events_max: int,
        bytes_max: int,
        packet_bytes_max: int,
        complain: Callable[[str], None],
        lost: Callable[[Reason], object] = lambda _: None,
        clock: Callable[[], float],
        kept: NothingKept | None = None,
    ) -> None:
        self.kept = NothingKept() if kept is None else kept
        policy = ClientPolicy(
            in_flight_max=WINDOW_MAX,
            queue_max=events_max,
            queue_bytes_max=bytes_max,
            drop_oldest=True,
            packet_size_max=packet_bytes_max,
            manual=True,
            adapts=True,
            retries_quota=True,
            halves=True,
            ping_s=PING_S,
            answer_s=ANSWER_S,
            identifiers=(1, IDS),
        )
        self.mqtt = ClientSession(msgspec.structs.replace(connect, clean_start=not self.kept.durable), policy)
        if self.kept.durable:
            self.mqtt.requests.end_forgotten()
        self._clock = clock
        self._reader = reader
        self._complain = complain
        self._lost = lost
        self._events = OpenEvents(self.kept)
        for event in self.kept.events():
            self.mqtt.publish(publish_of_event(event, reader.key), clock(), tag=self._events.add(event, noted=True))
        self._filters = self.kept.filters()
        self._unclaimed: dict[str, None] = {}
        self._numbers = max(self._filters.values(), default=0)
        self._been_there = bool(self._filters) or self.mqtt.requests.messages > 0

    @property
    def up(self) -> bool:
        return self.mqtt.up

    # The connection.

    def connected(self, connected: Connected) -> bool:
        """The cloud took us in; False if it has forgotten a session we had, and so perhaps everybody's."""
        requests, present = self.mqtt.requests, connected.connack.session_present
        remembered = present or not self._been_there
        self._been_there = True
        if present:
            requests.let_go()
            self._unclaimed = dict.fromkeys(self._filters)
            for topic_filter in [name for name, number in self._filters.items() if number == UNCERTAIN]:
                self._unsubscribe(topic_filter)
            return True
        for topic_filter in self._filters:
            self.kept.drop_filter(topic_filter)
        self._filters.clear()
        self._unclaimed.clear()
        requests.forget(lambda request: not _is_event(request))
        if not remembered:
            requests.withhold()
        return remembered

    def disconnected(self) -> None:
        """The connection is gone. Events, and what the cloud must forget, are kept; the strategy repeats the rest."""
        requests = self.mqtt.requests
        for request in requests.waiting():
            if isinstance(request.packet, Subscribe) and request.subject in self._filters:
                self._filters[request.subject] = UNCERTAIN
        requests.forget(lambda request: not (_is_event(request) or isinstance(request.packet, Unsubscribe)))

    def drop_unclaimed(self) -> None:
        """The strategy has made its requests: unsubscribe what else the cloud holds from before."""
        for topic_filter in tuple(self._unclaimed):
            self._unsubscribe(topic_filter)

    def let_events_go(self) -> None:
        """The others had time to subscribe again at a cloud that forgot everybody."""
        self.mqtt.requests.let_go()

    # What the strategy sends.

    def send(self, message: Message) -> None:
        """Take a message for the cloud, to be sent now or when it is there."""
        match message:
            case CloudPublish(event=event):
                if not event.topic.startswith("$"):
                    self._send_event(event)
            case _ if not self.up:
                return
            case CloudAnnounce():
                self.mqtt.publish(publish_of_announcement(message), self._clock())
            case CloudSubscribe(topic_filter=topic_filter):
                self._subscribe(topic_filter)
            case CloudUnsubscribe(topic_filter=topic_filter):
                self._unsubscribe(topic_filter)
            case CloudPing(token=token):
                self.mqtt.ping(token)

    def _send_event(self, event: model.Event) -> None:
        try:
            packet = publish_of_event(event, self._reader.key)
        except ProtocolError as error:
            self._refuse(event.topic, str(error))
            return
        tag = self._events.add(event)
        if event.qos:
            self.kept.when_safe(partial(self._publish, packet, tag))
        else:
            self._publish(packet, tag)

    def _publish(self, packet: Publish, tag: int) -> None:
        self.mqtt.publish(packet, self._clock(), tag=tag)

    def _subscribe(self, topic_filter: str) -> None:
        """Subscribe in two steps, so that what the cloud had retained can be told from what is published now."""
        self._unclaimed.pop(topic_filter, None)
        if topic_filter.startswith("$") or self._filters.get(topic_filter):
            return
        self._numbers += 1
        self._filters[topic_filter] = self._numbers
        self.kept.keep_filter(topic_filter, UNCERTAIN)
        request = SubscribeRequest(topic_filter, qos=2, no_local=True, retain_as_published=True)
        if self.mqtt.terms.limits.subscription_identifier_available == 0:
            self.mqtt.subscribe(request)
            return
        for identifier, handling in ((fetch_identifier(self._numbers), 0), (live_identifier(self._numbers), 2)):
            asked = msgspec.structs.replace(request, retain_handling=handling)
            self.mqtt.subscribe(asked, properties=Properties(subscription_identifiers=(identifier,)))

    def _unsubscribe(self, topic_filter: str) -> None:
        self._unclaimed.pop(topic_filter, None)
        if not topic_filter.startswith("$"):
            if self._filters.pop(topic_filter, None) is not None:
                self.kept.keep_filter(topic_filter, UNCERTAIN)
            self.mqtt.unsubscribe(topic_filter)

    # What the cloud sends.

    def receive(self, event: Event) -> list[Message]:
        """What an event of the MQTT session means for the strategy."""
        match event:
            case Publish():
                message = self._reader.read(event)
                return [] if message is None else [message]
            case Answered(request=request):
                assert isinstance(request.tag, int)
                return [CloudPong(request.tag)]
            case Acknowledged():
                self._acknowledged(event)
            case Dropped():
                self._dropped(event)
        return []

    def _acknowledged(self, event: Acknowledged) -> None:
        request, packet = event.request, event.request.packet
        refused = event.refusal
        if refused is not None:
            self._complain(f"the cloud refused {request.subject!r}: {refused.name.lower().replace('_', ' ')}")
        match packet:
            case Publish():
                self._done(request)
            case Subscribe():
                number = self._filters.get(request.subject)
                fetching = packet.properties.subscription_identifiers == (fetch_identifier(number or 0),)
                if number and not fetching and refused is None:
                    self.kept.keep_filter(request.subject, number)
            case Unsubscribe():
                if request.subject not in self._filters:
                    self.kept.drop_filter(request.subject)

    def _dropped(self, event: Dropped) -> None:
        self._done(event.request)
        if event.why != QUEUE_FULL:
            self._refuse(event.request.subject, event.why)
            return
        self._lost(Reason.QUEUE_FULL)

    def _refuse(self, subject: str, why: str) -> None:
        """It cannot be sent at all."""
        self._lost(Reason.UNSENDABLE)
        self._complain(f"cannot send {subject!r} to the cloud: {why}")

    def _done(self, request: Request) -> None:
        if isinstance(request.tag, int):
            self._events.done(request.tag)


def _is_event(request: Request) -> bool:
    """Announcements are messages, too, but nobody wants an old one."""
    return isinstance(request.packet, Publish) and request.tag is not None
