"""One connection of a client: what goes out, what comes in, and how it ends."""

import asyncio

from tests.sim.virtual.stage import HOST, PORT, Program, play, virtual

from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Connect, Packet, Pingreq, Pingresp
from geomq.mqtt.codec.types import V5
from geomq.sim.virtual.client_link import Link
from geomq.sim.virtual.ledger import Ledger
from geomq.sim.virtual.loop import VirtualLoop


class Owner:
    """Notes what its connection hands over."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.name = "c"
        self.loop = loop
        self.ledger = Ledger(loop.time, lambda _text: None, refuses=False, reroutes=False)
        self.taken: list[Packet] = []
        self.ended = 0

    def take(self, link: Link, packet: Packet) -> None:
        self.taken.append(packet)

    def lost(self, link: Link) -> None:
        self.ended += 1


def meet(answer: bytes) -> tuple[Owner, Link, Program]:
    """A client that connects to a program, which answers with these bytes and then hears a ping."""
    loop = virtual()
    owner, program = Owner(loop), Program()
    link = Link(owner, Connect("c", V5), "b", 1)

    async def story() -> None:
        loop.network.listen(lambda: program, HOST, PORT)
        await loop.network.connect(lambda: link, HOST, PORT, source="c")
        await asyncio.sleep(0.1)
        program.transport.write(answer)
        await asyncio.sleep(0.1)
        link.send(Pingreq())
        await asyncio.sleep(0.1)

    play(loop, story)
    return owner, link, program


def test_it_introduces_its_client_and_hands_over_what_comes() -> None:
    answers = (Connack(), Pingresp())
    owner, link, program = meet(b"".join(encode(each, V5) for each in answers))
    assert owner.taken == list(answers)
    assert program.got == encode(Connect("c", V5), V5) + encode(Pingreq(), V5)
    assert not link.over


def test_it_waits_for_an_answer_from_the_beginning() -> None:
    assert meet(b"")[1].expects_s is not None
    assert meet(encode(Pingresp(), V5))[1].expects_s is None


def test_bytes_that_make_no_packet_are_a_fault_and_end_it() -> None:
    owner, link, program = meet(b"\xf7\xff\xff\xff\xff\xff")
    assert [violation.kind for violation in owner.ledger.violations] == ["fault"]
    assert link.over
    assert owner.ended == 1
    assert program.notes == ["reset"]
