"""Statistics, results on disk, tables, figures and the comparison with the published numbers."""

import statistics as exact
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geomq.errors import DataError
from geomq.reproduction.disgb import published
from geomq.workload.evaluation import figures, report
from geomq.workload.evaluation.evaluate import evaluate_locally
from geomq.workload.evaluation.memory import peak_memory, tree_bytes
from geomq.workload.evaluation.results import Outcome, read_results, statistics_of, write_results
from geomq.workload.evaluation.summary import ORACLE, statistics
from geomq.workload.generation.disgb import preset
from geomq.workload.generation.presets import Request, build, describe


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    request = Request(variant="paper", clients=8000, topics=40, seconds=300)
    world, spec = build(request)
    return evaluate_locally(describe(request, world, spec, 0), world, spec, 1, True)


def test_statistics_of_a_histogram_are_exact() -> None:
    values = [3, 3, 3, 4, 9, 9, 20]
    found = statistics(np.bincount(values))
    assert found["mean"] == pytest.approx(exact.mean(values))
    assert found["std"] == pytest.approx(exact.pstdev(values))
    assert (found["p50"], found["p75"], found["p99"], found["max"], found["count"]) == (4, 9, 20, 20, 7)


def test_statistics_of_nothing_are_none() -> None:
    assert statistics(np.zeros(5, np.int64))["mean"] is None


def test_no_strategy_sends_fewer_messages_than_the_oracle(outcome: Outcome) -> None:
    least = sum(outcome.strategies[ORACLE].messages.values())
    for name, result in outcome.strategies.items():
        assert sum(result.messages.values()) >= least, name
        assert 0 <= result.redundant <= sum(result.messages.values())


def test_results_survive_the_disk(outcome: Outcome, tmp_path: Path) -> None:
    write_results(tmp_path / "r", [outcome], {"wall_s": 1.0}, overwrite=False)
    results = read_results(tmp_path / "r")
    assert [row["strategy"] for row in results["results"]] == list(outcome.strategies)
    expected = outcome.as_json()["strategies"]["dht"]["latency_ms"]
    assert statistics_of(results["histograms"], 0, "dht", "latency") == expected
    assert sum(row["messages"] for row in results["links"]) == sum(
        int(result.links.sum()) for result in outcome.strategies.values()
    )


def test_half_a_result_is_not_taken_for_a_whole_one(outcome: Outcome, tmp_path: Path) -> None:
    write_results(tmp_path / "r", [outcome], {}, overwrite=False)
    (tmp_path / "r" / "links.parquet").unlink()
    with pytest.raises(DataError, match="does not exist"):
        read_results(tmp_path / "r")
    (tmp_path / "r" / "manifest.json").unlink()
    with pytest.raises(DataError, match="not a complete geomq dataset"):
        read_results(tmp_path / "r")


def test_reports_show_every_strategy(outcome: Outcome, tmp_path: Path) -> None:
    write_results(tmp_path / "r", [outcome], {}, overwrite=False)
    results = read_results(tmp_path / "r")
    texts = [report.markdown(report.run_tables(results)), report.comma_separated(results), figures.page(results)]
    for text in texts:
        assert all(name in text for name in outcome.strategies)
    assert texts[2].count("data:image/svg+xml") == 4
    assert "http://" not in texts[2].replace("http://www.w3.org", "")
    paths = figures.write_figures(results, tmp_path / "figures")
    assert len(paths) == 8
    assert all(path.stat().st_size > 5000 for path in paths)


def test_an_empty_result_is_refused() -> None:
    with pytest.raises(DataError, match="no runs"):
        report.run_tables({"runs": [], "results": [], "histograms": [], "links": [], "places": []})


def test_the_comparison_names_all_published_strategies(outcome: Outcome) -> None:
    rows = published.compare(outcome, 0)
    assert {row[0] for row in rows} == set(published.TABLE_III)
    text = published.markdown({0: outcome})
    assert "Lower bound" in text
    assert all(claim.text in text for claim in published.claims({0: outcome}))


def test_a_share_of_the_clients_is_not_taken_for_all(outcome: Outcome) -> None:
    heading = f"Round 1: 25 brokers, {outcome.run.clients:,} of 100,000 clients (scaled, not comparable)\n"
    assert heading in published.markdown({0: outcome})
    assert heading in published.own_markdown({0: outcome})


@pytest.mark.parametrize(("dht_ms", "holds"), [(10, False), (22, True), (36, False)])
def test_a_factor_is_bounded_on_both_sides(outcome: Outcome, dht_ms: int, holds: bool) -> None:
    latency = {name: np.zeros(1000, np.int64) for name in published.TABLE_III}
    for name, counts in latency.items():
        counts[10 * dht_ms if name == "dht" else 10] = 1
    strategies = {
        name: replace(result, latency=latency.get(name, result.latency)) for name, result in outcome.strategies.items()
    }
    claims = published.claims({0: replace(outcome, strategies=strategies)})
    assert [claim.holds for claim in claims if "DHT" in claim.text] == [holds]


def test_table_three_is_met_within_a_tenth() -> None:
    """The published round of 25 brokers and 100,000 clients, exactly as it is."""
    request = published.requests([0], seed=1)[0]
    world, spec = build(request)
    assert spec == preset("paper")
    full = evaluate_locally(describe(request, world, spec, 0), world, spec, 1, True)
    for name, mean, _, ours, _, _ in published.compare(full, 0):
        assert ours == pytest.approx(mean, rel=0.1), name
    assert all(claim.holds for claim in published.claims({0: full}))
    assert "### Round 1: 25 brokers, 100,000 clients\n" in published.markdown({0: full})


def test_memory_of_this_process_is_seen() -> None:
    import os

    with peak_memory() as peak:
        block = bytearray(50_000_000)
    assert peak.mb > 50
    assert tree_bytes(os.getpid()) > len(block) / 2
