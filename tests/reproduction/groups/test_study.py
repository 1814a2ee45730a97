"""The paper's statements about formation, checked on a small sweep over real cities."""

from pathlib import Path

import pytest

from geomq.errors import DataError, UsageError
from geomq.reproduction.groups.cities import LISTS, broker_cities, read_cities
from geomq.reproduction.groups.figures import write_figures
from geomq.reproduction.groups.published import (
    PUBLISHED,
    claims,
    compare,
    formed,
    join_fits,
    markdown,
    moves_per_broker,
    threshold_slope,
)
from geomq.reproduction.groups.study import (
    CHANGES,
    FormationRow,
    FormationRun,
    change_runs,
    list_runs,
    run_formation,
    sweep,
    watch_runs,
)

THRESHOLDS = (10, 30, 100, 200, 400)
COUNTS = (600, 1200, 1800, 2400)


@pytest.fixture(scope="module")
def rows() -> list[FormationRow]:
    return [run_formation(FormationRun("form", count, ms)) for ms in THRESHOLDS for count in COUNTS]


def test_the_published_sweep_has_160_runs() -> None:
    runs = sweep()
    assert len(runs) == 160
    assert {(run.join_ms, run.brokers) for run in runs} >= set(PUBLISHED)


def test_groups_at_10_ms_are_within_15_percent_of_the_published_number(rows: list[FormationRow]) -> None:
    compared = [row for row in compare(rows) if row["what"] == "groups"]
    assert [row["brokers"] for row in compared] == [1200, 2400]
    assert all(abs(row["deviation_percent"]) < 15 for row in compared)


def test_ticks_and_joins_are_of_the_published_size(rows: list[FormationRow]) -> None:
    assert all(abs(row["deviation_percent"]) < 35 for row in compare(rows))


def test_joins_are_linear_in_brokers(rows: list[FormationRow]) -> None:
    assert all(fit > 0.98 for _, _, fit in join_fits(rows).values())


def test_a_higher_threshold_means_fewer_groups_by_a_power_law(rows: list[FormationRow]) -> None:
    points = [(row.join_ms, row.groups) for row in formed(rows) if row.brokers == 2400]
    groups = [count for _, count in points]
    assert groups == sorted(groups, reverse=True)
    assert -1.9 < threshold_slope(points) < -1.3


def test_every_statement_of_the_paper_holds_on_the_small_sweep(rows: list[FormationRow]) -> None:
    assert [claim for claim in claims(rows) if not claim.holds] == []


def test_the_list_of_cities_decides_how_many_groups_there_are() -> None:
    groups = {name: run_formation(FormationRun("form", 1200, 10, name)).groups for name in LISTS}
    assert groups["regions"] == max(groups.values())
    assert groups["largest"] < 0.85 * groups["regions"]


@pytest.mark.parametrize("change", CHANGES)
def test_re_forming_is_considerably_shorter_than_the_first_formation(change: str) -> None:
    small, large = (
        run_formation(FormationRun("change", 600, 30, change=change, share=share)) for share in (0.005, 0.05)
    )
    assert small.messages <= large.messages < large.first_messages / 4
    assert small.ticks <= large.first_ticks
    assert 0 < small.changed <= large.changed


def test_two_thresholds_and_a_moving_mean_stop_oscillation() -> None:
    by_remedy = {
        (leave, probes): moves_per_broker(
            run_formation(FormationRun("watch", 150, 30, leave_ms=30 * leave, noise=0.1, probes=probes))
        )
        for leave in (1.0, 1.5)
        for probes in (1, 20)
    }
    plain = by_remedy[1.0, 1]
    assert by_remedy[1.5, 1] < plain / 2
    assert by_remedy[1.0, 20] < plain / 2
    assert by_remedy[1.5, 20] < plain / 50


def test_the_same_run_gives_the_same_row() -> None:
    for run in (*change_runs(quick=True)[:1], *watch_runs(quick=True)[:1], *list_runs(quick=True)[-1:]):
        assert run_formation(run) == run_formation(run)


def test_the_sweep_has_each_setting_once_whatever_else_was_run() -> None:
    run = FormationRun("form", 30, 30, seed=2)
    rows = [run_formation(each) for each in (run, run, FormationRun("form", 30, 30, "largest", seed=2))]
    assert formed(rows) == rows[:1]
    assert formed([]) == []


def test_an_unknown_change_is_refused() -> None:
    with pytest.raises(UsageError, match="no change 'explode'"):
        run_formation(FormationRun("change", 10, 30, change="explode", share=0.1))


def test_tables_and_figures_show_all_kinds_of_runs(rows: list[FormationRow], tmp_path: Path) -> None:
    more = [
        *(FormationRun("form", 1200, 10, "largest", seed=seed) for seed in (2, 3)),
        FormationRun("change", 300, 30, change="depart", share=0.01),
        *(
            FormationRun("watch", 60, 30, leave_ms=leave, noise=0.1, probes=probes)
            for leave in (30, 45)
            for probes in (1, 20)
        ),
    ]
    everything = [*rows, *(run_formation(run) for run in more)]
    text = markdown(everything)
    for title in (
        "Figure 2",
        "Figure 3",
        "City lists",
        "Re-forming 300 brokers",
        "noisy probes",
        "What the paper says",
    ):
        assert title in text
    assert {path.name for path in write_figures(everything, tmp_path)} == {
        "groups-thresholds.svg",
        "groups-joins.svg",
        "groups-oscillation.svg",
    }


def test_city_lists_are_as_long_as_asked_and_never_name_a_place_twice() -> None:
    for name in LISTS:
        cities = broker_cities(name, 3000, seed=1)
        assert len(set(zip(cities.lat.tolist(), cities.lon.tolist(), strict=True))) == 3000


@pytest.mark.parametrize(("name", "count", "words"), [("best", 5, "no city list"), ("largest", 0, "between 1 and")])
def test_an_unknown_list_or_an_impossible_number_is_refused(name: str, count: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        broker_cities(name, count)


def test_a_list_of_ones_own_is_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "cities.csv"
    path.write_text("city,lat,lng,population\nA,1,2,50\nB,3,4,70\nC,5,6,\n")
    cities = broker_cities(str(path), 2)
    assert cities.population.tolist() == [50.0, 70.0]
    with pytest.raises(UsageError, match="holds 2 cities"):
        broker_cities(str(path), 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("city,lat\nA,1\n", "no column lng or lon or longitude"),
        ("lat,lng,population\nx,2,3\n", "line 2: .* must be numbers"),
        ("lat,lng,population\n95,2,3\n", "not a city on earth"),
        ("lat,lng,population\n1,nan,3\n", "not a city on earth"),
        ("lat,lng,population\n1,2,\n", "lists no city"),
    ],
)
def test_a_damaged_list_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "cities.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_cities(path)
