"""An MQTT client that speaks real bytes, keeps its session as the standard asks, and tells the ledger all it sees.

It does what it is told (`publish`, `subscribe`, `move`, `go_to`, `drop`, ...) and by itself only what every client
does: it connects again after a pause, sends again what was not answered, answers what it gets, and notices when its
broker has fallen silent. It stands outside all processes, so nothing that happens to brokers happens to it.
"""

import asyncio
import random
from collections import deque
from dataclasses import replace
from typing import Final

from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.sim.virtual.client_link import Link
from geomq.sim.virtual.ledger import Ledger
from geomq.sim.virtual.loop import VirtualLoop
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Circle, Place, Wish
from geomq.sim.virtual.unanswered import Asked, Outgoing

ANSWER_S_MAX: Final = 8.0
"""So long a client waits for its CONNACK, or for any answer while it expects one."""
PING_S: Final = 6.0
HALF_OPEN: Final = 0.3
"""How often a connection that is lost stays open at the broker."""
WINDOW: Final = 4
WAITING_MAX: Final = 200


class Device:
    """One client over all its connections. `homes` are the brokers' names with the hosts they listen on."""

    def __init__(
        self,
        profile: Profile,
        loop: VirtualLoop,
        ledger: Ledger,
        rng: random.Random,
        hosts: dict[str, str],
        home: str,
        place: Place | None = None,
    ) -> None:
        self.profile = profile
        self.name = profile.name
        self.loop = loop
        self.ledger = ledger
        self.home = home
        self.place = place
        self.wishes: dict[str, Wish] = {}
        self.published = 0
        self.links: list[Link] = []
        """Connections that are open as far as this client knows; only the last is used."""
        self._rng = rng
        self._hosts = hosts
        self._has_session = False
        self._clean_next = False
        self._connections = 0
        self._packet_id = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._asked: dict[int, Asked] = {}
        self._granted: set[str] = set()
        self._moving: dict[int, Place] = {}
        """Packets that say where the client is, until they are answered."""
        self._waiting: deque[Outgoing] = deque()
        self._received: set[int] = set()
        self._away = True
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event = asyncio.Event()

    @property
    def link(self) -> Link | None:
        """The connection in use, once accepted."""
        last = self.links[-1] if self.links else None
        return last if last is not None and last.accepted and not last.over else None

    @property
    def unanswered(self) -> int:
        return len(self._outgoing) + len(self._waiting)

    # Coming and going.

    def come(self) -> None:
        """Be connected from now on, whatever it takes."""
        self._away = False
        if self._task is None:
            self._task = self.loop.create_task(self._stay_connected())
        self._wake.set()

    def go_to(self, home: str) -> None:
        """Use another broker from now on; the connection to this one just ends."""
        self.home = home
        self.drop()

    def drop(self) -> None:
        """Lose the connection; sometimes only this end knows."""
        for link in self.links[-1:]:
            if self._rng.random() < HALF_OPEN:
                link.fade()
            else:
                link.abort()

    def leave(self) -> None:
        """Say goodbye and stay away."""
        self._away = True
        for link in self.links[-1:]:
            if link.accepted:
                self.ledger.left(self.name, link.number)
                link.said_goodbye = True
                link.send(Disconnect())
                link.close()
            else:
                link.abort()

    def vanish(self) -> None:
        """Stay away from now on; the broker learns that the connection broke."""
        self._away = True
        for link in self.links[-1:]:
            link.abort()

    def end_session(self) -> None:
        """Connect once more so that nothing is left of the session, then stay away."""
        self._clean_next = True
        self.drop()
        self.come()

    async def _stay_connected(self) -> None:
        while True:
            if self._away:
                self._wake.clear()
                await self._wake.wait()
                continue
            link = await self.connect_once(self.home)
            if link is not None:
                await self.watch(link)
            await asyncio.sleep(self._rng.uniform(0.05, 0.6))

    async def connect_once(self, home: str) -> Link | None:
        """Open a connection to a broker, beside those there are."""
        self._connections += 1
        link = Link(self, self._connect_packet(), home, self._connections)
        try:
            await self.loop.network.connect(lambda: link, self._hosts[home], 1883, source=self.name)
        except OSError:
            return None
        self.links.append(link)
        return link

    async def watch(self, link: Link) -> None:
        """Until the connection is over: ping, and end it when nothing comes."""
        next_ping = self.loop.now + PING_S
        while not link.over:
            await asyncio.sleep(0.5)
            if link.expects_s is not None and self.loop.now - link.expects_s > ANSWER_S_MAX:
                link.abort()
            elif self.loop.now >= next_ping and link.accepted:
                next_ping = self.loop.now + PING_S
                link.expects_s = link.expects_s or self.loop.now
                link.send(Pingreq())

    def _connect_packet(self) -> Connect:
        return self.profile.connect_packet(self.place, self._connections, ends=self._clean_next)

    # What comes.

    def take(self, link: Link, packet: Packet) -> None:
        match packet:
            case Connack():
                self._admitted(link, packet)
            case Publish():
                self._deliver(link, packet)
            case Pubrel():
                self._received.discard(packet.packet_id)
                link.send(Pubcomp(packet.packet_id))
            case Puback() | Pubrec() | Pubcomp():
                self._answered(link, packet)
            case Suback() | Unsuback():
                asked = self._asked.pop(packet.packet_id, None)
                if asked is not None:
                    granted = all(reason < 0x80 for reason in packet.reasons)
                    if granted and asked.wish.wanted:
                        self._granted.add(asked.wish.topic_filter)
                    self.ledger.granted(self.name, asked.wish, granted=granted)
            case Disconnect():
                self._sent_away(packet.properties)
            case _:
                pass

    def _sent_away(self, properties: Properties) -> None:
        """Another broker is to serve this client; a client that does not roam was not to be told."""
        address = properties.server_reference
        if address is not None:
            host = address.rpartition(":")[0]
            self.home = next(name for name, each in self._hosts.items() if each == host)

    def _admitted(self, link: Link, connack: Connack) -> None:
        if connack.reason != ReasonCode.SUCCESS:
            self.ledger.refused(self.name, link.broker, connack.reason.name)
            self._sent_away(connack.properties)
            link.abort()
            return
        link.accepted = True
        was_kept = self._has_session and not link.connect.clean_start
        self.ledger.admitted(self.name, link.broker, link.number, present=connack.session_present, expected=was_kept)
        self._has_session = self.profile.kept and not self._clean_next
        if self._clean_next:
            self._forget_everything(link)
            return
        if link.connect.version == V5 and self.place is not None:
            self.ledger.moved(self.name, self.place)
        if not connack.session_present:
            self._begin_anew(link)
        else:
            self._resume(link)
        self._send_waiting()

    def _forget_everything(self, link: Link) -> None:
        self._clean_next = False
        self._outgoing.clear()
        self._waiting.clear()
        self._asked.clear()
        self._received.clear()
        self._moving.clear()
        self._granted.clear()
        self.wishes.clear()
        self.ledger.ended(self.name)
        self.leave()

    def _begin_anew(self, link: Link) -> None:
        """The broker knows nothing: ask for everything again."""
        self._received.clear()
        self._asked.clear()
        self._granted.clear()
        self._forget_moves(link)
        unanswered, self._outgoing = self._outgoing, {}
        self._say_where(link)
        for wish in tuple(self.wishes.values()):
            self._ask(link, wish)
        for each in unanswered.values():
            if not each.released:
                self.ledger.ambiguous(each.event)
                self._send(each)

    def _resume(self, link: Link) -> None:
        self._forget_moves(link)
        for asked in self._asked.values():
            link.send(asked.packet)
        under_way = {asked.wish.topic_filter for asked in self._asked.values()}
        for wish in tuple(self.wishes.values()):
            if wish.topic_filter not in self._granted and wish.topic_filter not in under_way:
                self._ask(link, wish)
        self._say_where(link)
        for packet_id, each in self._outgoing.items():
            if each.released:
                link.send(Pubrel(packet_id))
            else:
                self.ledger.sent(each.event, link.broker, self.place)
                link.send(each.packet(packet_id, dup=True))
        link.expects_s = self.loop.now if self._outgoing or self._asked else None

    def _forget_moves(self, link: Link) -> None:
        """A new connection begins with the last place; where the client was before is of no interest."""
        for packet_id in self._moving:
            del self._outgoing[packet_id]
        self._moving.clear()

    def _say_where(self, link: Link) -> None:
        if self.place is not None and link.connect.version != V5:
            self._tell_place(link, self.place)

    def _deliver(self, link: Link, publish: Publish) -> None:
        if publish.qos == 2:
            link.send(Pubrec(publish.packet_id))
            if publish.packet_id in self._received:
                return
            self._received.add(publish.packet_id)
        elif publish.qos == 1:
            link.send(Puback(publish.packet_id))
        event = publish.payload.decode().rstrip()
        qos, dup, retain = publish.qos, publish.dup, publish.retain
        self.ledger.received(self.name, event, publish.topic, qos=qos, dup=dup, retain=retain, connection=link.number)

    def _answered(self, link: Link, packet: Puback | Pubrec | Pubcomp) -> None:
        each = self._outgoing.get(packet.packet_id)
        if each is None:
            if isinstance(packet, Pubrec):
                link.send(Pubrel(packet.packet_id))
            return
        if packet.reason >= 0x80 and not isinstance(packet, Pubcomp):
            self.ledger.declined(each.event, packet.reason.name)
            self._done(packet.packet_id, good=False)
        elif isinstance(packet, Pubrec):
            each.released = True
            link.send(Pubrel(packet.packet_id))
            self.ledger.acknowledged(each.event)
        else:
            self.ledger.acknowledged(each.event)
            self._done(packet.packet_id, good=True)

    def _done(self, packet_id: int, *, good: bool) -> None:
        del self._outgoing[packet_id]
        place = self._moving.pop(packet_id, None)
        if place is not None and good:
            self.ledger.moved(self.name, place)
        self._send_waiting()

    def lost(self, link: Link) -> None:
        if link in self.links:
            self.links.remove(link)
        if link.accepted:
            self.ledger.lost(self.name, link.number)
        else:
            self.ledger.tried(self.name)
        if not self.profile.kept:
            self._has_session = False

    # What is asked of it.

    def publish(
        self,
        topic: str,
        qos: int,
        *,
        retain: bool = False,
        fence: Circle | None = None,
        expiry_s: int | None = None,
        empty: bool = False,
        padding: int = 0,
        note: str = "",
    ) -> str:
        """Publish the next event now, or as soon as that is possible; its name. `note` goes along in a property."""
        self.published += 1
        event = f"{self.name}:{self.published}"
        user: tuple[tuple[str, str], ...] = () if fence is None else (("geo-fence", fence.text),)
        if note and self.profile.version == V5:
            user += (("note", note),)
        properties = Properties(message_expiry_interval=expiry_s, user_properties=user)
        self.ledger.publishing(
            event,
            self.name,
            topic,
            qos=qos,
            retain=retain,
            fence=fence,
            expiry_s=expiry_s,
            deletes=empty,
        )
        payload = b"" if empty else event.encode() + b" " * padding
        packet = Publish(topic, payload, qos, retain, properties=properties)
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(Outgoing(event, packet))
        self._send_waiting()
        return event

    def _send_waiting(self) -> None:
        link = self.link
        while self._waiting and link is not None and not self._clean_next and len(self._outgoing) < WINDOW:
            self._send(self._waiting.popleft())

    def _send(self, each: Outgoing) -> None:
        link = self.link
        if link is None:
            self._waiting.append(each)
            return
        self.ledger.sent(each.event, link.broker, self.place)
        if each.publish.qos == 0:
            link.send(each.publish)
            return
        packet_id = self._next_id()
        self._outgoing[packet_id] = each
        link.expects_s = link.expects_s or self.loop.now
        link.send(each.packet(packet_id, dup=False))

    def subscribe(self, wish: Wish) -> None:
        self.wishes[wish.topic_filter] = wish
        link = self.link
        if link is not None:
            self._ask(link, wish)

    def unsubscribe(self, topic_filter: str) -> None:
        """Take a wish back; only while connected."""
        link = self.link
        if link is None or topic_filter not in self._granted:
            return
        gone = replace(self.wishes.pop(topic_filter), wanted=False)
        self._granted.discard(topic_filter)
        self.ledger.asked(self.name, gone)
        packet = Unsubscribe(self._next_id(), (topic_filter,))
        self._asked[packet.packet_id] = Asked(gone, packet)
        link.send(packet)

    def _ask(self, link: Link, wish: Wish) -> None:
        self.ledger.asked(self.name, wish)
        user = () if wish.fence is None else (("geo-fence", wish.fence.text),)
        request = SubscribeRequest(wish.topic_filter, wish.qos)
        packet = Subscribe(self._next_id(), (request,), Properties(user_properties=user))
        self._asked[packet.packet_id] = Asked(wish, packet)
        link.expects_s = link.expects_s or self.loop.now
        link.send(packet)

    def move(self, place: Place) -> None:
        """Be somewhere else and say so, unless too much waits for an answer already."""
        link = self.link
        if link is not None and len(self._outgoing) < WINDOW:
            self.place = place
            self._tell_place(link, place)

    def _tell_place(self, link: Link, place: Place) -> None:
        self.ledger.moving(self.name, place)
        packet_id = self._next_id()
        packet = Publish("$geo/location", place.text.encode(), 1, packet_id=packet_id)
        self._outgoing[packet_id] = Outgoing("", packet)
        self._moving[packet_id] = place
        link.expects_s = link.expects_s or self.loop.now
        link.send(packet)

    def _next_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self._outgoing and self._packet_id not in self._asked:
                return self._packet_id

    def read_slowly(self, seconds: float) -> None:
        """Take nothing in for a while."""
        link = self.link
        if link is not None:
            link.pause()
            self.loop.call_later(seconds, link.resume)
