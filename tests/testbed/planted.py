"""A broker with one bug planted in it, for the fault runs to find: `python -m tests.testbed.planted BUG ...`"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

BUGS: dict[str, Callable[[], None]] = {}


def bug(plant: Callable[[], None]) -> Callable[[], None]:
    BUGS[plant.__name__] = plant
    return plant


@bug
def acknowledge_before_writing() -> None:
    from geomq.broker.storage.committer import Committer
    from geomq.broker.storage.outbox import Outbox

    def hold(self: Outbox, connection: Any, data: bytes) -> None:
        connection.send(data)
        self.schedule()

    def wrote(self: Committer) -> None:
        if not self.scheduled:
            self.scheduled = True
            asyncio.get_running_loop().call_later(1.0, self._write)

    Outbox.hold = hold  # type: ignore[method-assign]
    Committer.wrote = wrote  # type: ignore[method-assign]
    Committer.commit = lambda self: None  # type: ignore[method-assign]


@bug
def take_everything_twice() -> None:
    from geomq.routing.core.seen import SeenEvents
    from geomq.routing.wire.link import Ack, Link, LinkOutput

    def heard(self: Link, epoch: int, number: int, messages: Any) -> LinkOutput:
        self._heard_next = max(self._heard_next, number + len(messages))
        return LinkOutput([Ack(epoch, self._heard_next)], messages)

    Link._heard = heard  # type: ignore[method-assign]
    SeenEvents.first = lambda self, event_id: True  # type: ignore[method-assign]
    SeenEvents.unseen = lambda self, event_id, matches: matches  # type: ignore[method-assign]


@bug
def forget_what_waits_for_peers() -> None:
    from geomq.broker.peers.store import PeerStore
    from geomq.routing.wire.frames import encode_frame

    PeerStore.keep = lambda self, peer, frame: encode_frame(frame)  # type: ignore[method-assign]


@bug
def never_send_again() -> None:
    from geomq.routing.wire.link import Hello, Link, LinkOutput

    greeted = Link._greeted

    def forgetful(self: Link, hello: Hello, now: float) -> LinkOutput:
        if hello.heard_epoch == self.epoch:
            while self._outbox:
                self._forget_first()
        return greeted(self, hello, now)

    Link._greeted = forgetful  # type: ignore[method-assign]


@bug
def pass_on_without_end() -> None:
    from geomq.routing.core.model import BrokerId, EventId
    from geomq.routing.core.seen import SeenEvents
    from geomq.routing.strategies.mesh.mesh import Mesh

    class Forgetful(SeenEvents):
        def first(self, event_id: EventId) -> bool:
            return True

    start = Mesh.__init__

    def careless(self: Mesh, **context: object) -> None:
        start(self, **context)
        self.passed = Forgetful()

    def everybody(self: Mesh, _topic: str, source: BrokerId | None) -> list[BrokerId]:
        return [neighbour for neighbour in self.station.up if neighbour != source]

    Mesh.__init__ = careless  # type: ignore[method-assign]
    Mesh.targets = everybody  # type: ignore[method-assign, assignment]
    Mesh._hop_max = lambda self: 1 << 30  # type: ignore[method-assign]


@bug
def publish_wills_without_asking() -> None:
    from geomq.broker.clients.registry import Registry
    from geomq.broker.security.acl import ALL_RIGHTS

    publish_will = Registry._publish_will

    def careless(self: Registry, client: Any) -> None:
        rights, client.rights = client.rights, ALL_RIGHTS
        publish_will(self, client)
        client.rights = rights

    Registry._publish_will = careless  # type: ignore[method-assign]


def main() -> None:
    BUGS[sys.argv[1]]()
    del sys.argv[1]
    from geomq.cli import main as geomq

    geomq()


if __name__ == "__main__":
    main()
