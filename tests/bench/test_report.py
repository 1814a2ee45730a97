"""What a run shows."""

import io
import json

from bench.measure import Figure
from bench.report import as_json, number_text, show
from bench.results import Row, Target, cheaper
from rich.console import Console

FIGURES = {"geomq": Figure(2.0, 1.9, 2.1, 3), "mosquitto": Figure(3.0, 2.9, 3.1, 3)}
ROW = Row("qos0", "1-to-1", "us CPU per delivery", FIGURES, cheaper(FIGURES, "mosquitto", 1.2))


def test_verdicts_know_which_side_of_a_bound_is_good() -> None:
    assert Target("x", 1.2).judge(1.5).passed
    assert not Target("x", 1.2).judge(1.1).passed
    assert Target("KB", 4.0, at_least=False).judge(3.9).passed
    assert not Target("KB", 4.0, at_least=False).judge(4.1).passed


def test_a_broker_that_is_not_there_is_not_compared_with() -> None:
    assert cheaper(FIGURES, "amqtt", 10.0) == ()
    assert cheaper(FIGURES, "mosquitto", 1.2)[0].value == 1.5


def test_the_table_shows_figures_and_verdicts() -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    show([ROW], {"python": "3"}, console)
    text = console.export_text()
    assert "pass 1.50 x cheaper than mosquitto (>= 1.2)" in text
    assert "2 ±5%" in text
    assert "1 of 1 targets met" in text


def test_json_holds_everything() -> None:
    found = json.loads(as_json([ROW], {"python": "3"}, ["amqtt"], []))
    assert found["rows"][0]["figures"]["geomq"]["median"] == 2.0
    assert found["rows"][0]["verdicts"][0]["passed"] is True
    assert found["missing"] == ["amqtt"]


def test_numbers_are_short() -> None:
    assert [number_text(value) for value in (0.0, 0.081, 12.34, 23456.7, 7.0)] == ["0", "0.08", "12.3", "23,457", "7"]
