"""Some scenarios are played twice: by brokers that carry their clients themselves, and by brokers with two workers."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.broker.probes import OPEN

from geomq.broker.config.settings import Config
from geomq.broker.server import Broker

WITH_WORKERS = {
    "test_certificates_reloaded": "",
    "test_federation_topologies": "triangle",
    "test_interop": "",
    "test_roaming": r"^(?!.*_is_remembered_until)",  # which has five seconds
    "test_server_protocol": "",
    "test_shared_groups": "",
}
"""Modules, and the names of tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in WITH_WORKERS:
        metafunc.parametrize("workers_of_brokers", [1, 2], ids=["alone", "workers"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _is_wanted(item)]


def _is_wanted(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("workers_of_brokers", 1) == 1:
        return True
    return re.search(WITH_WORKERS[item.path.stem], item.name) is not None


@pytest.fixture(autouse=True)
def _no_probes_of_others() -> Iterator[None]:
    """A test that failed leaves probes whose event loop is closed; the next one has nothing to do with them."""
    yield
    OPEN.clear()


@pytest.fixture(autouse=True)
def workers_of_brokers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many workers every broker of the test has; 1 if the test does not say."""
    count: int = getattr(request, "param", 1)
    if count > 1:
        make = Broker.__init__

        def make_with_workers(self: Broker, config: Config, **more: Any) -> None:
            settings = msgspec.structs.replace(config.broker, workers=count)
            make(self, msgspec.structs.replace(config, broker=settings), **more)

        monkeypatch.setattr(Broker, "__init__", make_with_workers)
    return count
