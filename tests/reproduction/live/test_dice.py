"""Seeds of the live scenarios beside the published run."""

import pytest

from geomq.reproduction.live import dice
from geomq.reproduction.live.dice import MESSAGES, Roll, look_at, markdown
from geomq.reproduction.live.table_ii import Characteristics, Told


def test_a_seed_like_the_published_run_sends_what_was_published() -> None:
    (other, alike) = look_at("context", (19, 20))
    assert other.told is None
    for strategy, published in MESSAGES["context"].items():
        assert alike.messages()[strategy] == pytest.approx(published, rel=0.05)


def test_rolls_become_two_tables() -> None:
    row = Characteristics(193_000, 128_000, 500, 111_000, 640)
    rolls = [Roll(1, row, Told(1_500, 500, 7), 640, 200), Roll(2, row._replace(event_overlaps=600))]
    text = markdown({"hiking": rolls})
    assert "| hiking, subscription | 502 | 2 | 500 ± 0 | 2 |" in text
    assert "| hiking, event | 623 | 2 | 620 ± 20 | 1 |" in text
    assert "| hiking, disgb_subscriptions | 2,323 | 1 | 2,200 ± 0 |" in text
    assert f"within {dice.ALIKE:.1%}" in text
    assert "| none | - |" in markdown({"hiking": rolls[1:]})
