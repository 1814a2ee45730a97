"""The diagrams of the strategy pages show what the strategies do."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from geomq.dashboard.diagram import PUBLISHER, SUBSCRIBER, Arrow, arrows_of, diagram
from geomq.routing.strategies.registry import STRATEGIES

PAGES = Path(__file__).parents[2] / "docs" / "topics" / "strategies"
DRAWN = [name for name in STRATEGIES if name != "single"]


@pytest.mark.parametrize("strategy", DRAWN)
def test_a_diagram_is_up_to_date_and_on_a_page(strategy: str) -> None:
    """If not: python -m geomq.dashboard.diagram docs/topics/strategies/images"""
    drawn = diagram(strategy)
    assert (PAGES / "images" / f"{strategy}.svg").read_text() == drawn
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert any(f"images/{strategy}.svg" in page.read_text() for page in PAGES.glob("*.md"))


def test_flooding_reaches_every_other_broker_and_the_subscriber_hears_of_it() -> None:
    assert len(arrows_of("flood_events")) == 24
    assert Arrow(PUBLISHER, SUBSCRIBER, "delivery") in arrows_of("flood_subscriptions")
