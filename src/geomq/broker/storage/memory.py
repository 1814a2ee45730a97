"""The store of a broker that keeps nothing: the same calls, each doing as little as possible."""

from collections.abc import Iterable

from geomq.broker.storage.records import RetainedRecord, SessionRecord, StoredState, SubscriptionRecord
from geomq.broker.storage.store import Store
from geomq.broker.storage.writes import Writes
from geomq.mqtt.session.changes import Change
from geomq.mqtt.session.message import ApplicationMessage


class NoDisk:
    """Has nothing, takes nothing."""

    free_bytes_min = 0

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        return ()

    def write(self, writes: Writes) -> None:
        """Nothing is ever collected."""

    def sync(self) -> None:
        """Nothing is ever written."""

    def has_room(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


class MemoryStore(Store):
    """Forgets everything with the process."""

    durable = False

    def __init__(self) -> None:
        super().__init__(NoDisk())

    def load(self) -> StoredState:
        return StoredState(epoch=1)

    def put_session(self, client_id: str, record: SessionRecord) -> None:
        """Forgotten."""

    def delete_session(self, client_id: str) -> None:
        """Never there."""

    def put_subscription(self, client_id: str, record: SubscriptionRecord) -> None:
        """Forgotten."""

    def delete_subscription(self, client_id: str, topic_filter: str) -> None:
        """Never there."""

    def put_fence(self, client_id: str, name: str, text: str) -> None:
        """Forgotten."""

    def delete_fence(self, client_id: str, name: str) -> None:
        """Never there."""

    def record(self, changes: Iterable[Change]) -> None:
        """Forgotten."""

    def put_retained(self, message: ApplicationMessage, about: RetainedRecord | None = None) -> None:
        """Forgotten."""

    def put_note(self, kind: str, key: bytes, value: bytes) -> None:
        """Forgotten."""

    def delete_note(self, kind: str, key: bytes) -> None:
        """Never there."""
