"""The cloud broker: topics, no echo, nothing of geography."""

from geomq.geo import Circle, Location
from geomq.routing.core.actions import Action, DeliverToClients, SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    PeerDown,
    PeerSaid,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.strategies.groups.cloud import CloudNode
from geomq.routing.strategies.groups.messages import (
    CloudAnnounce,
    CloudAnnounced,
    CloudPing,
    CloudPong,
    CloudPublish,
    CloudPublished,
    CloudSubscribe,
    CloudUnsubscribe,
)

A, B, C = BrokerId("a"), BrokerId("b"), BrokerId("c")


def event(topic: str = "t/1") -> Event:
    fence = Circle(Location(1.0, 2.0), 5.0)
    return Event(EventId(A, 0, 1), topic, ClientId("x"), None, fence, b"payload", 1, True, b"properties")


def cloud_with(*filters: tuple[BrokerId, str]) -> CloudNode:
    cloud = CloudNode(BrokerId("cloud"))
    for peer, topic_filter in filters:
        assert say(cloud, peer, CloudSubscribe(topic_filter)) == []
    return cloud


def say(cloud: CloudNode, peer: BrokerId, message: Message) -> list[Action]:
    return cloud.handle(PeerSaid(peer, message), now=0.0)


def test_an_event_goes_once_and_untouched_to_each_matching_leader_but_its_sender() -> None:
    cloud = cloud_with((A, "#"), (B, "t/+"), (B, "t/1"), (C, "u"))
    assert say(cloud, A, CloudPublish(event())) == [SendToPeer(B, CloudPublished(event()))]


def test_a_leader_that_unsubscribed_or_whose_link_broke_gets_nothing() -> None:
    cloud = cloud_with((B, "t/1"), (C, "t/1"))
    say(cloud, B, CloudUnsubscribe("t/1"))
    say(cloud, B, CloudUnsubscribe("t/1"))
    cloud.handle(PeerDown(C), now=0.0)
    assert say(cloud, A, CloudPublish(event())) == []
    assert cloud.state_size() == 0


def test_announcements_reach_the_leaders_that_listen_to_their_topic() -> None:
    cloud = cloud_with((A, "DG/leaders"), (B, "DG/leaders"), (C, "t"))
    heard = say(cloud, A, CloudAnnounce("DG/leaders", A, 2.0))
    assert heard == [SendToPeer(B, CloudAnnounced("DG/leaders", A, 2.0))]


def test_a_ping_is_answered_with_its_token() -> None:
    assert say(cloud_with(), A, CloudPing(3)) == [SendToPeer(A, CloudPong(3))]


def test_a_malformed_filter_is_ignored() -> None:
    cloud = cloud_with((A, "a#"), (A, ""), (A, "x"))
    assert cloud.subscriptions(A) == ("x",)


def test_clients_of_the_cloud_itself_send_and_receive() -> None:
    cloud = cloud_with((B, "t/1"))
    client = ClientId("authority")
    cloud.handle(ClientSubscribed(client, "t/#"), now=0.0)
    assert say(cloud, A, CloudPublish(event()))[1:] == [DeliverToClients(event(), (Match(client, "t/#"),))]
    sent, delivered = cloud.handle(ClientPublished(client, "t/1", qos=2), now=0.0)
    assert isinstance(sent, SendToPeer)
    assert isinstance(delivered, DeliverToClients)
    assert delivered.event.id == EventId(BrokerId("cloud"), 0, 1)
    assert delivered.event.qos == 2
    assert sent == SendToPeer(B, CloudPublished(delivered.event))


def test_clients_that_unsubscribe_or_go_are_forgotten() -> None:
    cloud = cloud_with()
    for name in ("one", "two"):
        cloud.handle(ClientSubscribed(ClientId(name), "t/1"), now=0.0)
    cloud.handle(ClientUnsubscribed(ClientId("one"), "t/1"), now=0.0)
    cloud.handle(ClientGone(ClientId("two")), now=0.0)
    assert say(cloud, A, CloudPublish(event())) == []
    assert cloud.state_size() == 0


def test_what_a_vanilla_broker_does_not_know_is_ignored() -> None:
    cloud = cloud_with()
    assert cloud.handle(ClientMoved(ClientId("x"), Location(0.0, 0.0)), now=0.0) == []
    assert say(cloud, A, CloudPublished(event())) == []
    assert cloud.next_deadline() is None
    assert cloud.on_deadline(now=0.0) == []


def test_a_client_and_a_broker_of_the_same_name_are_two() -> None:
    cloud = cloud_with((B, "t/1"))
    cloud.handle(ClientSubscribed(ClientId("b"), "t/1"), now=0.0)
    cloud.handle(ClientGone(ClientId("b")), now=0.0)
    assert say(cloud, A, CloudPublish(event())) == [SendToPeer(B, CloudPublished(event()))]
