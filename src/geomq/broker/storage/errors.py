"""What can go wrong with a store, and how RocksDB's words become one line of ours."""

import re

from geomq.errors import GeomqError


class StoreError(GeomqError):
    """The store cannot be opened, read or written; nothing more may be acknowledged."""


class StoreFull(StoreError):  # noqa: N818
    """The disk has no room; the same writes can succeed later."""


def damaged(path: str, what: str) -> StoreError:
    """The StoreError for a store that is not as it was left, with what to do."""
    return StoreError(
        f"store {path} is damaged: {what}; see what is lost with `geomq store check {path}`, save the rest with"
        f" `geomq store repair {path}`"
    )


def store_error(path: str, action: str, error: BaseException) -> StoreError:
    """The StoreError for an exception out of RocksDB."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    if re.search(r"no space|quota exceeded|space limit", text, re.IGNORECASE):
        return StoreFull(f"store {path}: the disk is full")
    if re.search(r"lock.*(unavailable|hold by|held by|no locks)", text, re.IGNORECASE):
        return StoreError(f"store {path}: another broker uses it")
    if re.search(r"corruption|checksum|no such file", text, re.IGNORECASE):
        return damaged(path, f"cannot {action} it: {text[:300]}")
    return StoreError(f"store {path}: cannot {action} it: {text[:300]}")
