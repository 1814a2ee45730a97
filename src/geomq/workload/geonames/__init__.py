"""The cities of the world as tables: those of a million people or more with their names, and all of 15,000 or more.

Owns reading them, in the order in which they are drawn. They are data of GeoNames, https://www.geonames.org, under the
licence CC BY 4.0, https://creativecommons.org/licenses/by/4.0/, of which columns and cities were left out;
`tools/cities.py` wrote them.
"""

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

LARGE = Path(__file__).with_name("large.csv")
CITIES = Path(__file__).with_name("cities.csv.gz")


class LargeCity(NamedTuple):
    """A city of a million people or more."""

    name: str
    lat: float
    lon: float
    population: int


class City(NamedTuple):
    """A city of 15,000 people or more, and the codes of the country and the province or state it is in."""

    lat: float
    lon: float
    population: int
    region: tuple[str, str]


def read_large() -> list[LargeCity]:
    """In the order of their GeoNames ids, one per location."""
    with LARGE.open(encoding="utf-8", newline="") as lines:
        return [LargeCity(name, float(lat), float(lon), int(people)) for name, lat, lon, people in csv.reader(lines)]


def read_cities() -> list[City]:
    """By falling population, one per location."""
    with gzip.open(CITIES, "rt", encoding="utf-8", newline="") as lines:
        return [
            City(float(lat), float(lon), int(people), (country, province))
            for lat, lon, people, country, province in csv.reader(lines)
        ]
