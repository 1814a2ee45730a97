"""Publishes that may come again and count once: the user property `geo-once`, `writer:number`.

A writer numbers what it publishes, ever higher. A number that is not higher than the writer's last is a repeat: it is
acknowledged and goes nowhere. What is remembered is one number a writer, written with the event it belongs to, so it
survives whatever the event survives. Writers of different users never meet.
"""

from collections.abc import Mapping
from typing import Final

from geomq.broker.storage.store import Store

NOTE: Final = "once"
WRITERS_MAX: Final = 10_000
WRITER_CHARS_MAX: Final = 200
_NUMBER_MAX: Final = (1 << 63) - 1


class Writers:
    """The last number of each writer; beyond `WRITERS_MAX` the user with the most forgets its longest silent one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: dict[bytes, int] = {}
        self._of_user: dict[bytes, dict[bytes, None]] = {}

    def load(self, notes: Mapping[bytes, bytes]) -> None:
        """Take in what the store remembered."""
        for key, value in notes.items():
            self._keep(key, int.from_bytes(value, "big"))

    def repeats(self, user: str | None, text: str) -> bool:
        """Whether the writer has been at this number before; a text that is no `writer:number` repeats nothing."""
        found = _read(user, text)
        return found is not None and found[1] <= self._last.get(found[0], -1)

    def note(self, user: str | None, text: str) -> None:
        """The event with this number was accepted."""
        found = _read(user, text)
        if found is None:
            return
        key, number = found
        self._keep(key, number)
        self._store.put_note(NOTE, key, number.to_bytes(8, "big"))
        if len(self._last) > WRITERS_MAX:
            greedy, writers = max(self._of_user.items(), key=lambda item: len(item[1]))
            oldest = next(iter(writers))
            del writers[oldest], self._last[oldest]
            if not writers:
                del self._of_user[greedy]
            self._store.delete_note(NOTE, oldest)

    def _keep(self, key: bytes, number: int) -> None:
        self._last[key] = number
        writers = self._of_user.setdefault(key.partition(b"\0")[0], {})
        writers.pop(key, None)
        writers[key] = None


def _read(user: str | None, text: str) -> tuple[bytes, int] | None:
    writer, colon, digits = text.rpartition(":")
    if not colon or not 0 < len(writer) <= WRITER_CHARS_MAX or len(digits) > 19 or not digits.isascii():
        return None
    if not digits.isdigit() or int(digits) > _NUMBER_MAX:
        return None
    return f"{'' if user is None else '@' + user}\0{writer}".encode("utf-8", "surrogatepass"), int(digits)
