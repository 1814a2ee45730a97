"""Which of the items read from a damaged store still make sense together, and what each of the others was."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from geomq.broker.storage.load import READERS
from geomq.broker.storage.records import (
    DELIVERY,
    EPOCH_KEY,
    FENCE,
    FORMAT,
    FORMAT_KEY,
    MESSAGE,
    MISSED,
    NOTE,
    PER_CLIENT,
    RECEIPT,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    number_bytes,
    split_named,
)
from geomq.broker.storage.store import EPOCH_SHIFT

NAMES = {
    SUBSCRIPTION: "subscriptions",
    FENCE: "named fences",
    DELIVERY: "queued messages",
    RECEIPT: "receipts of QoS 2 messages",
    MISSED: "counts of dropped messages",
    SESSION: "sessions",
}

Items = dict[bytes, bytes]


class Mended:
    """`items` fit together, `lost` says of the rest what it was, `kept` counts what there is by its name."""

    def __init__(self, items: Items) -> None:
        self.items: Items = {}
        self.lost: list[str] = []
        self.kept: Counter[str] = Counter()
        self._messages: set[int] = set()
        self._sessions: set[str] = set()
        self._lost_of: Counter[tuple[str, str]] = Counter()
        for kind in (MESSAGE, SESSION):
            self._take(items, kind)
        for kind in (SUBSCRIPTION, FENCE, DELIVERY, RECEIPT, MISSED, RETAINED, NOTE):
            self._take(items, kind)
        self._take_heads(items)
        for (client, what), count in sorted(self._lost_of.items()):
            self.lost.append(f"client {client!r}: {count} {what}")

    def _take(self, items: Items, kind: bytes) -> None:
        take: Callable[[bytes, bytes], bool] = {MESSAGE: self._message, RETAINED: self._retained, NOTE: self._note}.get(
            kind, self._of_client
        )
        for key, value in items.items():
            if key[:1] != kind:
                continue
            try:
                fits = take(key, value)
            except (ValueError, IndexError, msgspec.MsgspecError):
                fits = False
                self.lost.append(f"an unreadable record, key {key[:60]!r}")
            if fits:
                self.items[key] = value

    def _message(self, key: bytes, value: bytes) -> bool:
        READERS[MESSAGE](value)
        self._messages.add(int.from_bytes(key[1:]))
        return True

    def _of_client(self, key: bytes, value: bytes) -> bool:
        client, rest = split_named(key)
        kind = key[:1]
        record: Any = READERS[kind](value) if kind in READERS else None
        if kind == SESSION:
            self._sessions.add(client)
            if rest:
                raise ValueError("key is too long")
        elif client not in self._sessions or (kind == DELIVERY and record.message not in self._messages):
            self._lost_of[client, NAMES[kind]] += 1
            return False
        self.kept[NAMES[kind]] += 1
        return True

    def _retained(self, key: bytes, value: bytes) -> bool:
        topic = key[1:].decode("utf-8", "surrogatepass")
        if READERS[RETAINED](value).message not in self._messages:
            self.lost.append(f"retained message on {topic!r}")
            return False
        self.kept["retained messages"] += 1
        return True

    def _note(self, key: bytes, _value: bytes) -> bool:
        split_named(key)
        self.kept["notes about peers and others"] += 1
        return True

    def _take_heads(self, items: Items) -> None:
        """The format, and a start count that no message number is ahead of."""
        known = {FORMAT_KEY, EPOCH_KEY}
        kinds = {MESSAGE, RETAINED, NOTE, *PER_CLIENT}
        for key in items:
            if key not in known and key[:1] not in kinds:
                self.lost.append(f"a record of an unknown kind, key {key[:60]!r}")
        epoch = max(int.from_bytes(items.get(EPOCH_KEY, b"")), max(self._messages, default=0) >> EPOCH_SHIFT)
        self.items[FORMAT_KEY] = b"%d" % FORMAT
        self.items[EPOCH_KEY] = number_bytes(epoch)
