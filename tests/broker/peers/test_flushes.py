"""A message that waits for what was sent before it goes when all of that was acknowledged, and not before."""

from geomq.broker.peers.flushes import Flushes
from geomq.routing.core.messages import DropClient, Message
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.messages import Flushed
from geomq.routing.wire.link import Ack, Hello, Link

AMS, BER = BrokerId("ams"), BrokerId("ber")
DROP = DropClient(ClientId("c"))


def link() -> Link:
    made = Link(epoch=1)
    made.connected(now=0)
    made.receive(Hello(2, 0, None, 0, reply=True), now=0)
    return made


def test_it_goes_when_every_peer_has_acknowledged_what_was_sent_before() -> None:
    links, sent, flushes = {AMS: link(), BER: link()}, list[tuple[BrokerId, Message]](), Flushes()
    for each in links.values():
        each.send(DROP, now=0)
    flushes.add(AMS, Flushed(1), links, lambda peer, message: sent.append((peer, message)))
    links[AMS].send(DROP, now=0)
    for peer, then in ((AMS, []), (BER, [(AMS, Flushed(1))])):
        links[peer].receive(Ack(1, 1), now=0)
        flushes.send(links)
        assert sent == then
    assert len(flushes) == 0


def test_it_does_not_wait_for_who_left() -> None:
    links, sent, flushes = {AMS: link(), BER: link()}, list[Message](), Flushes()
    links[BER].send(DROP, now=0)
    flushes.add(AMS, Flushed(1), links, lambda _, message: sent.append(message))
    flushes.send({AMS: links[AMS], BER: link()})
    assert sent == [Flushed(1)]


def test_what_is_asked_again_keeps_its_place_and_a_newer_question_takes_it() -> None:
    links, sent, flushes = {BER: link()}, list[Message](), Flushes()
    links[BER].send(DROP, now=0)
    flushes.add(AMS, Flushed(1), links, lambda _, message: sent.append(message))
    links[BER].send(DROP, now=0)
    flushes.add(AMS, Flushed(1), links, lambda _, message: sent.append(message))
    links[BER].receive(Ack(1, 1), now=0)
    flushes.send(links)
    assert sent == [Flushed(1)]
    flushes.add(AMS, Flushed(2), links, lambda _, message: sent.append(message))
    flushes.add(AMS, Flushed(3), links, lambda _, message: sent.append(message))
    links[BER].receive(Ack(1, 2), now=0)
    flushes.send(links)
    assert sent == [Flushed(1), Flushed(3)]
