"""How many files and sockets the process may have open, and how many of them are kept for what must not fail.

The system gives each new one the lowest free number, so the number of an accepted socket says how many are left.
"""

from typing import Final, NamedTuple

try:
    import resource
except ImportError:  # no such limit on this system
    resource = None  # type: ignore[assignment]

STORE_FILES_MAX: Final = 256
RESERVED: Final = 384
"""For the store's tables and logs, listeners, HTTP, and clients whose connections are ending."""
LINK: Final = 2
"""A peer may be dialled while it dials."""


class Descriptors(NamedTuple):
    """What is left under a limit; None is no limit."""

    limit: int | None

    @property
    def reserved(self) -> int:
        """Kept for the store and whatever is neither a client nor a link."""
        return 0 if self.limit is None else min(RESERVED, self.limit // 2)

    @property
    def store_files(self) -> int:
        """How many tables the store may have open."""
        return STORE_FILES_MAX if self.limit is None else min(STORE_FILES_MAX, self.limit // 4)

    @property
    def clients_end(self) -> int | None:
        """No client is accepted beyond a socket of this number, until lower ones are free again: only others may go
        on into what is reserved."""
        return self._end(6)

    @property
    def peers_end(self) -> int | None:
        """The same for links."""
        return self._end(5.5)

    @property
    def http_end(self) -> int | None:
        """The same for those who ask how the broker is. What is left belongs to the store."""
        return self._end(5)

    def _end(self, sevenths: float) -> int | None:
        return None if self.limit is None else self.limit - int(self.reserved * sevenths / 7)

    def connections(self, wanted: int, *, peers: int = 0) -> int:
        """How many clients may be connected beside so many peers, if it were for the settings `wanted`."""
        return wanted if self.limit is None else max(1, min(wanted, self.limit - self.reserved - LINK * peers))

    def endings(self, connections: int, *, peers: int = 0) -> int | None:
        """How many may still be ending beside so many connections and peers before new clients have to wait."""
        return None if self.clients_end is None else max(1, self.clients_end - connections - LINK * peers)


def descriptors() -> Descriptors:
    """Those of this process."""
    if resource is None:
        return Descriptors(None)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Descriptors(None if soft == resource.RLIM_INFINITY else soft)


def raise_limit() -> None:
    """Let this process have as many as it may give itself."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            except (OSError, ValueError):
                return  # some systems promise more than they give; it stays as it was
