"""What a connection needs of the thing it writes to, and where its bytes go when it is closed."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

SHARED_BYTES: Final = 4_096
"""Larger pieces are written one by one: others are sent the same, and joined they would be copied for each."""


class Transport(Protocol):
    """What a connection needs of the thing it writes to."""

    def write(self, data: bytes | memoryview) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def can_write_eof(self) -> bool: ...

    def write_eof(self) -> None: ...

    def set_protocol(self, protocol: Any) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def nowhere(_data: bytes | memoryview) -> None:
    """Where bytes for a closed connection go."""


def write_pieces(write: Callable[[bytes], object], pieces: Sequence[bytes]) -> int:
    """Write what gathered for one connection; how many bytes that were."""
    if len(pieces) == 1:
        write(pieces[0])
        return len(pieces[0])
    size = sum(map(len, pieces))
    if size > SHARED_BYTES * len(pieces):
        for piece in pieces:
            write(piece)
    else:
        write(b"".join(pieces))
    return size
