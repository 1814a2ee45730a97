"""Where brokers stand."""

from pathlib import Path

import pytest

from geomq.errors import DataError, UsageError
from geomq.workload.cities import PUBLISHED, choose_cities, large_cities, read_places


def test_large_cities_are_large_and_stand_apart() -> None:
    cities = large_cities()
    assert len(cities) > 400
    assert min(city.population for city in cities) >= 1_000_000
    assert len({(city.lat, city.lon) for city in cities}) == len(cities)


def test_the_same_seed_chooses_the_same_cities() -> None:
    assert choose_cities(40, field_deg=6, seed=3) == choose_cities(40, field_deg=6, seed=3)
    assert choose_cities(40, field_deg=6, seed=3) != choose_cities(40, field_deg=6, seed=4)


def test_chosen_cities_keep_their_distance_and_have_names_of_their_own() -> None:
    cities = choose_cities(60, field_deg=5, seed=1)
    for i, a in enumerate(cities):
        for b in cities[:i]:
            lon = abs(a.lon - b.lon)
            assert ((a.lat - b.lat) ** 2 + min(lon, 360 - lon) ** 2) ** 0.5 >= 5
    assert len({city.name for city in cities}) == 60


@pytest.mark.parametrize("count", [0, -1, 5000])
def test_a_number_of_brokers_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="number of brokers"):
        choose_cities(count, field_deg=6, seed=1)


def test_too_many_brokers_for_the_field_size_are_refused() -> None:
    with pytest.raises(UsageError, match="smaller field"):
        choose_cities(400, field_deg=6, seed=1)


def test_places_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "brokers.csv"
    path.write_text("name,latitude,longitude,population\nRome,41.9,12.5,2800000\nOslo,59.9,10.7,700000\n")
    rome, oslo = read_places(path)
    assert (rome.name, rome.lat, oslo.lon, oslo.population) == ("Rome", 41.9, 10.7, 700000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,latitude,longitude\nRome,1,2\n", "no column 'population'"),
        ("name,latitude,longitude,population\nRome,x,2,3\n", "line 2: latitude"),
        ("name,latitude,longitude,population\nRome,91,2,3\n", "not a place on earth"),
        ("name,latitude,longitude,population\nRome,nan,2,3\n", "not a place on earth"),
        ("name,latitude,longitude,population\nRome,1,2,0\n", "population must be"),
        ("name,latitude,longitude,population\n,1,2,3\n", "needs a name"),
        ("name,latitude,longitude,population\nRome,1,2,3\nRome,3,4,5\n", "lists a broker twice"),
        ("name,latitude,longitude,population\n", "lists no brokers"),
        ("", "no column 'name'"),
    ],
)
def test_a_bad_file_of_places_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "brokers.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_places(path)


def test_a_missing_or_binary_file_of_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        read_places(tmp_path / "none.csv")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        read_places(tmp_path / "x.csv")


def test_the_published_places_are_twenty_five() -> None:
    assert len(PUBLISHED) == 25
    assert (PUBLISHED[0].name, PUBLISHED[24].name) == ("Nanjing", "Calgary")
