"""The config decides where a broker keeps what it keeps."""

from pathlib import Path

import pytest

from geomq.broker.config.settings import BrokerSettings, Config, Persistence
from geomq.broker.storage.configured import open_configured_store
from geomq.broker.storage.memory import MemoryStore
from geomq.errors import ConfigError


def test_the_store_is_where_the_config_says(tmp_path: Path) -> None:
    config = Config(broker=BrokerSettings(name="b", data_dir=str(tmp_path / "data")))
    store = open_configured_store(config)
    store.close()
    assert store.durable
    assert (tmp_path / "data").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot make"):
        open_configured_store(Config(broker=BrokerSettings(name="b", data_dir=str(tmp_path / "file" / "data"))))


def test_without_persistence_the_store_is_memory() -> None:
    assert isinstance(open_configured_store(Config(persistence=Persistence(enabled=False))), MemoryStore)
