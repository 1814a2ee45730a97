"""Messages to other brokers go where the links are."""

from geomq.broker.state.links import CloudAndPeers, Outgoing, Send
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, Edition
from geomq.routing.core.plan import EventBatch
from geomq.routing.retained.versions import RetainedWanted

CLOUD, PARIS = BrokerId("cloud"), BrokerId("paris")
BATCH = EventBatch(1, 0, (), ())


class Peers:
    def __init__(self) -> None:
        self.sent: list[tuple[BrokerId, object]] = []

    def send(self, peer: BrokerId, message: Message) -> None:
        self.sent.append((peer, message))

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        self.sent.append((peer, batch))

    def room(self, peer: BrokerId, size: int) -> int:
        return 7

    def once_flushed(self, peer: BrokerId, message: Message, send: Send) -> None:
        self.sent.append((peer, message))


class Cloud:
    name = CLOUD
    up = True

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)

    async def stop(self) -> None: ...


def test_messages_go_to_the_links_there_are_now_and_else_nowhere() -> None:
    outgoing, peers = Outgoing(), Peers()
    outgoing.send(PARIS, RetainedWanted())
    outgoing.send_batch(PARIS, BATCH, None)
    assert not outgoing.active
    assert outgoing.room(PARIS, 1) > 1_000_000
    outgoing.lead(peers)
    assert outgoing.room(PARIS, 1) == 7
    outgoing.send(PARIS, RetainedWanted())
    outgoing.send_batch(PARIS, BATCH, None)
    assert outgoing.active
    assert peers.sent == [(PARIS, RetainedWanted()), (PARIS, BATCH)]
    outgoing.once_flushed(PARIS, RetainedWanted(), outgoing.send)
    assert len(peers.sent) == 3
    outgoing.lead(None)
    outgoing.send(PARIS, RetainedWanted())
    outgoing.once_flushed(PARIS, RetainedWanted(), outgoing.send)
    assert len(peers.sent) == 3


def test_what_is_for_the_cloud_goes_to_the_cloud_and_the_rest_to_peers() -> None:
    cloud, peers = Cloud(), Peers()
    both, alone = CloudAndPeers(cloud, peers), CloudAndPeers(cloud, None)
    for links in (both, alone):
        links.send(CLOUD, RetainedWanted())
        links.send(PARIS, RetainedWanted())
        links.send_batch(PARIS, BATCH, None)
        links.once_flushed(PARIS, RetainedWanted(), links.send)
    assert both.room(PARIS, 1) == 7
    assert alone.room(PARIS, 1) > 1_000_000
    assert cloud.sent == [RetainedWanted()] * 2
    assert peers.sent == [(PARIS, RetainedWanted()), (PARIS, BATCH), (PARIS, RetainedWanted())]
