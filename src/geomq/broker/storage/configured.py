"""The store that a config asks for: a folder, or memory."""

import os

from geomq.broker.config.settings import Config
from geomq.broker.storage.memory import MemoryStore
from geomq.broker.storage.store import Store, open_store
from geomq.errors import ConfigError


def open_configured_store(config: Config) -> Store:
    """Open it, and make its folder; ConfigError in one line if that cannot be."""
    if not config.persistence.enabled:
        return MemoryStore()
    try:
        os.makedirs(config.broker.data_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {config.broker.data_dir}: {error.strerror}") from None
    return open_store(
        config.store_path,
        sync=config.persistence.sync,
        free_bytes_min=config.persistence.free_bytes_min,
    )
