"""QoS 1 and 2 from one sender: each QoS 2 message is accepted once, and never more at a time than was agreed.

Answers are the caller's, because they wait for the store; it says here when they have been sent.
"""

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.changes import Journal, ReceiptAdded, ReceiptRemoved


class Inbound:
    """The receiving half of a session."""

    __slots__ = ("_client_id", "_journal", "open", "receipts", "receive_max")

    def __init__(self, client_id: str, *, receive_max: int, journal: Journal | None = None) -> None:
        self._client_id = client_id
        self._journal = journal
        self.receipts: dict[int, None] = {}
        """QoS 2 identifiers accepted and not yet released."""
        self.open: set[int] = set()
        """Identifiers of what is not answered yet."""
        self.receive_max = receive_max

    def forget_journal(self) -> None:
        self._journal = None

    def restore(self, packet_id: int) -> None:
        self.receipts[packet_id] = None

    def connect(self, receive_max: int) -> None:
        """A new network connection: what is open there starts at nothing."""
        self.receive_max = receive_max
        self.open.clear()

    def accept(self, packet_id: int, qos: int) -> bool:
        """Whether the PUBLISH is new; a repeated QoS 2 one is not and only needs its PUBREC again."""
        if packet_id not in self.open:
            if len(self.open) >= self.receive_max:
                raise ProtocolViolation(
                    f"more than {self.receive_max} unacknowledged messages",
                    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                )
            self.open.add(packet_id)
        if qos != 2:
            return True
        if packet_id in self.receipts:
            return False
        self.receipts[packet_id] = None
        if self._journal is not None:
            self._journal.append(ReceiptAdded(self._client_id, packet_id))
        return True

    def answered(self, packet_id: int, qos: int, *, failed: bool) -> None:
        """PUBACK or PUBREC is on its way; after a failure a QoS 2 identifier is free again."""
        if qos == 1:
            self.open.discard(packet_id)
        elif failed:
            self.release(packet_id)

    def release(self, packet_id: int) -> bool:
        """PUBREL: whether the identifier was known; PUBCOMP is due either way."""
        self.open.discard(packet_id)
        if packet_id not in self.receipts:
            return False
        del self.receipts[packet_id]
        if self._journal is not None:
            self._journal.append(ReceiptRemoved(self._client_id, packet_id))
        return True
