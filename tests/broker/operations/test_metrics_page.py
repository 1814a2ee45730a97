"""The reference page of the metrics names all of them, and a running broker serves no other."""

import asyncio
from pathlib import Path

from geomq.broker.config.settings import Config, Listener, Persistence
from geomq.broker.operations.metrics import make_registry, metrics_text
from geomq.broker.operations.metrics_page import metrics_page
from geomq.broker.server import Broker

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_the_page_is_up_to_date() -> None:
    """If not: python -m geomq.broker.operations.metrics_page > docs/reference/metrics.md"""
    assert PAGE.read_text() == metrics_page()


def test_a_running_broker_serves_what_the_page_names() -> None:
    async def scrape() -> str:
        config = Config(listeners=(Listener(host="127.0.0.1", port=0),), persistence=Persistence(enabled=False))
        async with Broker(config) as broker:
            return metrics_text(make_registry(broker.view)).decode()

    served = {line.split()[2] for line in asyncio.run(scrape()).splitlines() if line.startswith("# TYPE geomq_")}
    named = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `geomq_")}
    assert served == named
