"""The writes of one loop tick: in order, without those that cancelled each other before reaching the disk."""

from collections.abc import Callable

RANGE_END = b"\xff" * 9


class Writes:
    """Puts and deletes by key. A later write to a key replaces an earlier one."""

    __slots__ = ("_born", "keys", "sealed")

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes | None] = {}
        self._born: set[bytes] = set()
        self.sealed: list[tuple[dict[bytes, bytes | None], bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.keys[key] = value

    def put_new(self, key: bytes, value: bytes) -> None:
        """Put a key that was never used before; deleting it before it is written leaves no trace."""
        self.keys[key] = value
        self._born.add(key)

    def delete(self, key: bytes) -> None:
        if key in self._born:
            self._born.discard(key)
            del self.keys[key]
        else:
            self.keys[key] = None

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete every key that starts with `prefix` and goes on with UTF-8 text or at most eight bytes."""
        self.sealed.append((self.keys, prefix))
        self.keys = {}
        self._born.clear()

    def replay(
        self,
        put: Callable[[bytes, bytes], object],
        delete: Callable[[bytes], object],
        delete_range: Callable[[bytes, bytes], object],
    ) -> None:
        """Hand every write over in order; doing so again has the same effect."""
        for keys, prefix in self.sealed:
            _hand_over(keys, put, delete)
            delete_range(prefix, prefix + RANGE_END)
        _hand_over(self.keys, put, delete)


def _hand_over(
    keys: dict[bytes, bytes | None],
    put: Callable[[bytes, bytes], object],
    delete: Callable[[bytes], object],
) -> None:
    for key, value in keys.items():
        if value is None:
            delete(key)
        else:
            put(key, value)
