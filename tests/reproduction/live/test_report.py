"""Statements about live experiments, made of numbers written by hand."""

import numpy as np

from geomq.reproduction.live.report import claims, markdown
from geomq.reproduction.live.study import Study
from geomq.reproduction.live.table_ii import Characteristics, Told
from geomq.workload.evaluation.results import Outcome, Run
from geomq.workload.evaluation.summary import StrategyResult


def result(name: str, events: int) -> StrategyResult:
    links = np.zeros((4, 4), np.int64)
    none = links.copy()
    links[1, 2] = events
    latency = np.array([0, 5, 3], np.int64)
    return StrategyResult(name, links, none, none, none, none, events, latency, np.zeros(1, np.int64))


def full_study(*, adaptive: int = 640, lost: int = 0, late_ms: float = 3.0) -> Study:
    """Hiking at full size, with numbers near the published ones."""
    totals = {"disgb_events": 630, "disgb_subscriptions": 2_400, "adaptive": adaptive}
    run = Run(0, "hiking", "live", 3, 3600, 2, 900, None, None, 1)
    outcome = Outcome(run, [], 111_000, 128_000, {name: result(name, count) for name, count in totals.items()})
    check = {"lost": lost, "duplicated": 0, "unexpected": 0, "received": 8, "possible": 0, "correct": 2, "redundant": 1}
    replay = {"lateness": {"p50": 0.1, "p95": 1.0, "p99": late_ms}, "latency": {"max": 1_520.0}}
    rows = [Characteristics(193_000, 128_000, 500 + more, 111_000, 600 + 10 * more) for more in range(5)]
    return Study(
        10.0,
        characteristics={"hiking": rows[0]},
        spread={"hiking": rows},
        told={"hiking": Told(1_700, 600, 9)},
        live={"hiking": outcome},
        evaluated={"hiking": outcome},
        checks={"hiking": dict.fromkeys(totals, check)},
        replays={"hiking": dict.fromkeys(totals, replay)},
    )


def test_a_good_run_meets_every_statement() -> None:
    found = claims(full_study())
    assert all(claim.holds for claim in found)
    assert any("disgb_events sends as many messages as published" in claim.text for claim in found)
    assert any("what dice give" in claim.text for claim in found)


def test_what_does_not_hold_is_said() -> None:
    failed = [claim.text for claim in claims(full_study(adaptive=900, lost=2, late_ms=50.0)) if not claim.holds]
    assert len(failed) == 3
    assert "nothing is lost, doubled or delivered to the wrong client" in failed
    assert any("adaptive within 10 %" in text for text in failed)
    assert any("less than 20 ms late" in text for text in failed)


def test_counts_that_differ_from_the_evaluation_are_said_with_how_late_deliveries_were() -> None:
    study = full_study()
    study.evaluated["hiking"] = full_study(adaptive=654).live["hiking"]
    (agreement,) = (claim for claim in claims(study) if "agree within 2 % or 10 messages" in claim.text)
    assert not agreement.holds
    assert "disgb_events 630 / 630, " in agreement.numbers
    assert "adaptive 640 / 654 (longest delivery 15.2 s of the scenario's time)" in agreement.numbers
    study.evaluated["hiking"] = full_study(adaptive=650).live["hiking"]
    assert all(claim.holds for claim in claims(study))


def test_published_numbers_stand_beside_ours() -> None:
    text = markdown(full_study())
    assert "| hiking, published | 193,709 | 128,008 | 502 | 111,811 | 623 |" in text
    assert "| disgb_events | 630 | 0 | 0 | 0 | **630** | 630 | 630 | 623 | 0 |" in text
    assert "| disgb_subscriptions | 2,400 | 0 | 0 | 0 | **2,400** | 2,400 | 2,300 | 2,323 | 0 |" in text
    assert "| hiking, 5 seeds | 193,000 ± 0 |" in text
