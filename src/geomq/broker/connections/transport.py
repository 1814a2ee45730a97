"""What a connection needs of the thing it writes to, and where its bytes go when it is closed."""

from typing import Any, Protocol


class Transport(Protocol):
    """What a connection needs of the thing it writes to."""

    def write(self, data: bytes | memoryview) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def nowhere(_data: bytes | memoryview) -> None:
    """Where bytes for a closed connection go."""
