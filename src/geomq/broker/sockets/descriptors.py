"""How many files and sockets the process may have open, and how many of them are kept for what must not fail.

The system gives each new one the lowest free number, so the number of an accepted socket says how many are left.
"""

from typing import Final, NamedTuple

try:
    import resource
except ImportError:  # no such limit on this system
    resource = None  # type: ignore[assignment]

STORE_FILES_MAX: Final = 256
OTHERS: Final = 128
"""Listeners, log, trace, links to peers, HTTP, and clients whose connections are ending."""


class Descriptors(NamedTuple):
    """What is left under a limit; None is no limit."""

    limit: int | None

    @property
    def reserved(self) -> int:
        """Kept for the store and whatever is not a client."""
        return 0 if self.limit is None else min(STORE_FILES_MAX + OTHERS, self.limit // 2)

    @property
    def store_files(self) -> int:
        """How many tables the store may have open."""
        return STORE_FILES_MAX if self.limit is None else min(STORE_FILES_MAX, self.limit // 4)

    @property
    def clients_end(self) -> int | None:
        """A client's socket is numbered below this: where it is not, so many have opened what was reserved that the
        store would be next."""
        return None if self.limit is None else self.limit - self.reserved * 2 // 3

    @property
    def others_end(self) -> int | None:
        """The same for peers and those who ask how the broker is: a few more than for clients."""
        return None if self.limit is None else self.limit - self.reserved // 2

    def connections(self, wanted: int) -> int:
        """How many clients may be connected if it were for the settings `wanted`."""
        return wanted if self.limit is None else max(1, min(wanted, self.limit - self.reserved))


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
