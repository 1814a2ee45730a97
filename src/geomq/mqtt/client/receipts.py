"""The receiving half of a client session: which messages await an acknowledgement, and what is a repeat.

A message is reported once for as long as the server cannot know that it arrived: a repeat of one that the program has
not acknowledged is the same message, and so is a repeat of a QoS 2 message that the server has not released. Only a
PUBLISH with the DUP flag is a repeat; without it the server starts something new.
"""

from enum import IntEnum

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.reasons import ReasonCode


class Arrival(IntEnum):
    """What a PUBLISH is."""

    NEW = 0
    HELD = 1
    """A repeat of one the program has not acknowledged yet."""
    ANSWERED = 2
    """A repeat of one the program has acknowledged: only the answer is due."""


class _Receipt:
    """`publish` is what was reported, for as long as it is not acknowledged; `here` that it came on this connection."""

    __slots__ = ("here", "publish", "qos")

    def __init__(self, publish: Publish | None, qos: int, *, here: bool) -> None:
        self.publish = publish
        self.qos = qos
        self.here = here


class Receipts:
    """QoS 1 and 2 messages from the server that are not finished."""

    __slots__ = ("_open", "_receipts", "receive_max")

    def __init__(self, receive_max: int) -> None:
        self.receive_max = receive_max
        self._receipts: dict[int, _Receipt] = {}
        self._open = 0

    def __len__(self) -> int:
        return len(self._receipts)

    @property
    def unreleased(self) -> tuple[int, ...]:
        """QoS 2 identifiers that were answered and that the server has not released."""
        return tuple(number for number, one in self._receipts.items() if one.qos == 2 and one.publish is None)

    def restore(self, packet_id: int) -> None:
        self._receipts[packet_id] = _Receipt(None, 2, here=False)

    def disconnect(self) -> None:
        """What comes on the next connection is answered there."""
        self._open = 0
        for receipt in self._receipts.values():
            receipt.here = False

    def clear(self) -> None:
        """The server has no session."""
        self._receipts.clear()
        self._open = 0

    def arrive(self, publish: Publish) -> Arrival:
        """Take in a PUBLISH of QoS 1 or 2."""
        packet_id = publish.packet_id
        receipt = self._receipts.get(packet_id)
        if receipt is None or not (publish.dup and receipt.qos == publish.qos):
            if receipt is not None and receipt.here:
                raise ProtocolViolation(f"packet identifier {packet_id} is in use already")
            self._receipts[packet_id] = receipt = _Receipt(publish, publish.qos, here=False)
            self._enter(receipt)
            return Arrival.NEW
        if not receipt.here:
            self._enter(receipt)
        return Arrival.ANSWERED if receipt.publish is None else Arrival.HELD

    def _enter(self, receipt: _Receipt) -> None:
        receipt.here = True
        self._open += 1
        if self._open > self.receive_max:
            raise ProtocolViolation(
                f"more than {self.receive_max} unacknowledged messages", ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
            )

    def acknowledge(self, publish: Publish) -> bool:
        """The program is done with the message: whether the answer may be sent now. If not, it is due on the repeat."""
        receipt = self._receipts.get(publish.packet_id)
        if receipt is None or receipt.publish is not publish:
            return False
        receipt.publish = None
        if not receipt.here:
            return False
        if receipt.qos == 1:
            self._close(publish.packet_id)
        return True

    def answer_again(self, packet_id: int) -> bool:
        """A message that was acknowledged came once more: whether its answer may be sent now."""
        receipt = self._receipts.get(packet_id)
        if receipt is None or receipt.publish is not None or not receipt.here:
            return False
        if receipt.qos == 1:
            self._close(packet_id)
        return True

    def release(self, packet_id: int) -> bool:
        """PUBREL: whether the identifier was known."""
        receipt = self._receipts.get(packet_id)
        if receipt is None:
            return False
        if receipt.qos != 2 or receipt.publish is not None:
            raise ProtocolViolation(f"PUBREL for packet {packet_id}, which was not acknowledged")
        self._close(packet_id)
        return True

    def _close(self, packet_id: int) -> None:
        if self._receipts.pop(packet_id).here:
            self._open -= 1
